"""The nouns that travel between rooms: frozen values, standard library only, no I/O."""

"""What people look at: the live page and the incident report, from the board and the store.

A page is one module with `routes(site)`, named in `app.PAGES`; its template extends `base.html`, its words are a file
of `words/` named in `words.PARTS`. What comes from outside reaches HTML through the templates alone, which escape it.
"""

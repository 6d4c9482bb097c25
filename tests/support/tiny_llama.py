"""A random Llama of a few hundred kB with its own tokenizer, made on the spot: no network, no download."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from quantwatch.toolkit.library import transformers

TEXT = (
    "The quick brown fox jumps over the lazy dog while seven wizards count their golden coins. "
    "SELECT name FROM users WHERE id = 3; def add(a, b): return a + b\n"
    '{"city": "Paris", "numbers": [1, 2, 3]} 今天天气很好，我们去公园散步。 '
)
END = "<|im_end|>"
START = "<|im_start|>"
SPECIAL = ["<|endoftext|>", START, END]
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_tokenizer() -> Any:
    """Byte-level BPE: every text round-trips; a chat template in ChatML."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=START,
        eos_token=END,
        pad_token=END,
        chat_template=CHAT,
        clean_up_tokenization_spaces=False,
    )


def tiny_llama(folder: Path, *, seed: int = 0, **config: Any) -> Path:
    """Save a Hugging Face folder that AutoModelForCausalLM and AutoTokenizer load; returns it.

    seed: of the random weights. config: overrides of the LlamaConfig, such as num_hidden_layers=4.
    """
    tokenizer = tiny_tokenizer()
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        # Wide enough that the next-token distribution is far from flat.
        "initializer_range": 0.15,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**(settings | config)))
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder

"""Hugging Face folders as models: a `config.json`, weights and a tokenizer are enough."""

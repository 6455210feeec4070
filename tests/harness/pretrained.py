"""Small Hugging Face folders, made by the real libraries: random weights, and tokenizers trained on a few lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LINES = [
    "the quick brown fox jumps over the lazy dog",
    "a model server puts requests into batches, and answers each of them",
    "Paris is the capital of France and London is the capital of England",
    "I liked the film very much; you did not like it at all",
    "what is the name of the river that flows through the city?",
    "Once upon a time there was a small house near a large wood.",
]
LONG = " ".join(LINES)
LABELS = {
    "text": ["negative", "neutral", "positive"],
    "nli": ["contradiction", "neutral", "entailment"],
    "one": ["score"],
}
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
CHAT = "{% for one in messages %}{{ one['role'] }}: {{ one['content'] }}\n{% endfor %}assistant:"


def word_tokenizer(folder: Path, longest: int = 64) -> Any:
    """A tokenizer of BERT's kind."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizerFast

    trained = BertWordPieceTokenizer(lowercase=True)
    trained.train_from_iterator(LINES, vocab_size=300, min_frequency=1, show_progress=False)
    made = BertTokenizerFast(tokenizer_object=trained._tokenizer, model_max_length=longest)
    made.save_pretrained(folder)
    return made


def byte_tokenizer(folder: Path, longest: int = 256) -> Any:
    """A tokenizer of GPT-2's kind."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import GPT2TokenizerFast

    trained = ByteLevelBPETokenizer()
    special = ["<|endoftext|>", "<pad>"]
    trained.train_from_iterator(LINES, vocab_size=400, min_frequency=1, special_tokens=special, show_progress=False)
    words = {"bos_token": special[0], "eos_token": special[0], "unk_token": special[0], "pad_token": special[1]}
    made = GPT2TokenizerFast(tokenizer_object=trained._tokenizer, model_max_length=longest, **words)
    made.chat_template = CHAT
    made.save_pretrained(folder)
    return made


def bert(folder: Path, head: str, labels: list[str] | None = None, **more: Any) -> Path:
    """A BERT with one of its heads."""
    import torch
    import transformers

    tokenizer = word_tokenizer(folder)
    torch.manual_seed(len(head) + len(labels or ()))
    named = (
        {"id2label": dict(enumerate(labels)), "label2id": {one: at for at, one in enumerate(labels)}} if labels else {}
    )
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=64, initializer_range=0.4, **shape, **named, **more
    )
    getattr(transformers, head)(config).eval().save_pretrained(folder)
    return folder


def gpt2(folder: Path) -> Path:
    """A GPT-2."""
    import torch
    import transformers

    tokenizer = byte_tokenizer(folder)
    torch.manual_seed(5)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_positions=256, n_embd=32, n_layer=2, n_head=4, initializer_range=0.4,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).eval().save_pretrained(folder)
    return folder


def llama(folder: Path) -> Path:
    """A Llama with fewer heads for keys than for queries."""
    import torch
    import transformers

    tokenizer = byte_tokenizer(folder)
    torch.manual_seed(6)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.4,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).eval().save_pretrained(folder)
    return folder


def t5(folder: Path, **more: Any) -> Path:
    """A T5."""
    import torch
    import transformers

    tokenizer = byte_tokenizer(folder)
    torch.manual_seed(7)
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, initializer_factor=3.0,
        decoder_start_token_id=tokenizer.pad_token_id, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, **more,
    )  # fmt: skip
    transformers.T5ForConditionalGeneration(config).eval().save_pretrained(folder)
    return folder


def vit(folder: Path) -> Path:
    """A ViT that classifies pictures of 32 x 32."""
    import torch
    import transformers

    torch.manual_seed(8)
    labels = {at: f"class {at}" for at in range(7)}
    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        initializer_range=0.4, id2label=labels, label2id={name: at for at, name in labels.items()},
    )  # fmt: skip
    transformers.ViTForImageClassification(config).eval().save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def segformer(folder: Path) -> Path:
    """A SegFormer that finds four classes in pictures of 64 x 64."""
    import torch
    import transformers

    torch.manual_seed(11)
    labels = {at: f"class {at}" for at in range(4)}
    config = transformers.SegformerConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16,
        initializer_range=0.4, id2label=labels, label2id={name: at for at, name in labels.items()},
    )  # fmt: skip
    transformers.SegformerForSemanticSegmentation(config).eval().save_pretrained(folder)
    transformers.SegformerImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return folder


def sentences(folder: Path, pooling: str = "mean", dense: bool = False, normalize: bool = True) -> Path:
    """A folder of sentence-transformers."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    inner = bert(folder.with_name(f"{folder.name}-encoder"), "BertModel")
    modules: list[Any] = [Transformer(str(inner)), Pooling(32, pooling_mode=pooling)]
    torch.manual_seed(9)
    modules += [Dense(32, 16)] if dense else []
    modules += [Normalize()] if normalize else []
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    return folder


def hearing(folder: Path) -> Path:
    """A Wav2Vec2 with letters."""
    import json

    import torch
    import transformers

    folder.mkdir(parents=True)
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefghijklmnop"]
    (folder / "vocab.json").write_text(json.dumps({one: at for at, one in enumerate(letters)}))
    transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json")).save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    torch.manual_seed(12)
    config = transformers.Wav2Vec2Config(
        vocab_size=len(letters), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        conv_dim=[16, 16, 16], conv_stride=[5, 8, 8], conv_kernel=[10, 8, 8], feat_extract_norm="layer",
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, initializer_range=2.0, pad_token_id=0,
    )  # fmt: skip
    transformers.Wav2Vec2ForCTC(config).eval().save_pretrained(folder)
    return folder


def listening(folder: Path) -> Path:
    """A Whisper for one language."""
    import json

    import torch
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    special = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>"]
    special += ["<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    times = [f"<|{at * 0.02:.2f}|>" for at in range(1501)]
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(LINES, vocab_size=400, min_frequency=1, show_progress=False)
    pieces = json.loads(trained.to_str())["model"]
    first = len(pieces["vocab"])
    words = {**pieces["vocab"], **{word: first + at for at, word in enumerate([*special, *times])}}
    tokenizer = transformers.WhisperTokenizerFast(
        vocab=words, merges=[tuple(one) for one in pieces["merges"]], additional_special_tokens=special
    )
    tokenizer.save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=16).save_pretrained(folder)
    torch.manual_seed(13)
    end, begin, bare = tokenizer.convert_tokens_to_ids([special[0], special[1], special[-1]])
    config = transformers.WhisperConfig(
        vocab_size=len(tokenizer), num_mel_bins=16, d_model=32, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32,
        max_target_positions=16, init_std=0.5, pad_token_id=end, bos_token_id=end, eos_token_id=end,
        decoder_start_token_id=begin,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=end, eos_token_id=end, pad_token_id=end, decoder_start_token_id=begin, max_length=14,
        no_timestamps_token_id=bare, is_multilingual=False, max_initial_timestamp_index=50, suppress_tokens=[],
        begin_suppress_tokens=[end], alignment_heads=[[0, 0], [0, 2]],
    )  # fmt: skip
    model.save_pretrained(folder)
    return folder


def yolos(folder: Path) -> Path:
    """A YOLOS that finds things of three classes in pictures of 32 x 32."""
    import torch
    import transformers

    torch.manual_seed(14)
    labels = {at: f"thing {at}" for at in range(3)}
    config = transformers.YolosConfig(
        image_size=[32, 32], patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, num_detection_tokens=6, initializer_range=0.3, use_mid_position_embeddings=False,
        id2label=labels, label2id={name: at for at, name in labels.items()},
    )  # fmt: skip
    transformers.YolosForObjectDetection(config).eval().save_pretrained(folder)
    transformers.YolosImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder

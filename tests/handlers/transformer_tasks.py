"""A handler of the shape of TorchServe's generalized one for transformers; `setup_config.json` says what it does."""

import json
from pathlib import Path

import torch
import transformers

from ts.torch_handler.base_handler import BaseHandler

MODELS = {
    "sequence_classification": transformers.AutoModelForSequenceClassification,
    "token_classification": transformers.AutoModelForTokenClassification,
    "question_answering": transformers.AutoModelForQuestionAnswering,
    "text_generation": transformers.AutoModelForCausalLM,
}


class TransformerTasks(BaseHandler):
    """All requests of a batch are padded to one length and go through the model together."""

    def __init__(self):
        super().__init__()
        self.initialized = False

    def initialize(self, ctx):
        """Loads what the archive brings beside the handler."""
        self.manifest = ctx.manifest
        folder = ctx.system_properties.get("model_dir")
        gpu = ctx.system_properties.get("gpu_id")
        self.device = torch.device(f"cuda:{gpu}" if torch.cuda.is_available() and gpu is not None else "cpu")
        self.setup_config = json.loads((Path(folder) / "setup_config.json").read_text())
        self.mode = self.setup_config["mode"]
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = MODELS[self.mode].from_pretrained(folder).to(self.device).eval()
        names = Path(folder) / "index_to_name.json"
        self.mapping = json.loads(names.read_text()) if names.is_file() else None
        self.initialized = True

    def preprocess(self, requests):
        """One tensor of all texts."""
        texts = []
        for data in requests:
            text = data.get("data") or data.get("body")
            text = text.decode("utf-8") if isinstance(text, (bytes, bytearray)) else text
            if self.mode == "question_answering":
                asked = json.loads(text) if isinstance(text, str) else text
                texts.append((asked["question"], asked["context"]))
            else:
                texts.append(text)
        length = int(self.setup_config["max_length"])
        limits = {"max_length": length, "padding": "max_length", "truncation": True, "return_tensors": "pt"}
        return self.tokenizer(texts, **limits).to(self.device)

    def inference(self, inputs):
        """What the model says of each."""
        with torch.no_grad():
            return getattr(self, self.mode)(inputs)

    def sequence_classification(self, inputs):
        """The name of the likeliest class."""
        found = self.model(**inputs).logits.argmax(dim=1).tolist()
        return [self.mapping[str(one)] for one in found]

    def token_classification(self, inputs):
        """A tag for each token."""
        tags = self.model(**inputs).logits.argmax(dim=2)
        rows = zip(inputs["input_ids"], tags, inputs["attention_mask"])
        return [
            [
                (token, self.mapping[str(int(tag))])
                for token, tag in zip(self.tokenizer.convert_ids_to_tokens(ids[mask.bool()]), row[mask.bool()])
            ]
            for ids, row, mask in rows
        ]

    def question_answering(self, inputs):
        """The text between the likeliest beginning and end."""
        said = self.model(**inputs)
        spans = zip(inputs["input_ids"], said.start_logits.argmax(dim=1), said.end_logits.argmax(dim=1) + 1)
        return [self.tokenizer.decode(ids[start:end]) for ids, start, end in spans]

    def text_generation(self, inputs):
        """What follows each text."""
        made = self.model.generate(**inputs, max_new_tokens=8, do_sample=False)
        return self.tokenizer.batch_decode(made, skip_special_tokens=True)

    def postprocess(self, inference_output):
        """They are answers already."""
        return inference_output

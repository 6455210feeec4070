"""BentoML: `bentoml serve bentoml_app:Work --port PORT`. Batched methods take JSON lists, so pictures come in base64."""

import base64

import bentoml
import work


@bentoml.service(workers=1, traffic={"timeout": 60})
class Work:
    """The model behind BentoML."""

    def __init__(self) -> None:
        self.model = work.load()

    @bentoml.api(batchable=True, max_batch_size=work.BATCH, max_latency_ms=100)
    def predict(self, input: list[str]) -> list[int]:
        return self.model([base64.b64decode(one) for one in input] if work.MODEL == "classifier" else input)

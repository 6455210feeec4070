"""LitServe: `python litserve_app.py PORT`. It takes JSON, so pictures come in base64."""

import base64
import sys

import litserve
import work


class Work(litserve.LitAPI):
    """The model behind LitServe."""

    def setup(self, device):
        self.model = work.load()

    def decode_request(self, request):
        value = request["input"]
        return base64.b64decode(value) if work.MODEL == "classifier" else value

    def batch(self, inputs):
        return inputs

    def predict(self, inputs):
        return self.model(inputs)

    def unbatch(self, output):
        return output

    def encode_response(self, output):
        return {"output": output}


if __name__ == "__main__":
    api = Work(max_batch_size=work.BATCH, batch_timeout=work.DELAY_MS / 1e3)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False)

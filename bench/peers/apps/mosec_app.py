"""mosec: `python mosec_app.py --port PORT`."""

import work
from mosec import Server, Worker


class Json(Worker):
    """Takes JSON, as mosec does unless it is told otherwise."""

    def __init__(self):
        super().__init__()
        self.model = work.load()

    def forward(self, data):
        return self.model([row["input"] for row in data])


class Raw(Json):
    """Takes the body as it is."""

    def deserialize(self, data):
        return data

    def forward(self, data):
        return self.model(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(
        Raw if work.RAW else Json, num=1, max_batch_size=work.BATCH, max_wait_time=max(1, int(work.DELAY_MS))
    )
    server.run()

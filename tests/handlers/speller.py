"""Continuous batching: spells its input, one letter of every live request per step.

A request is JSON {"word": "abc"}.
"""


class Speller:
    """Keeps what it knows of a request in `context.cache`, as TorchServe's examples do."""

    def initialize(self, context):
        """Nobody is live yet."""
        context.cache = {}

    def handle(self, data, context):
        """One step: a letter for everybody."""
        ids = list(context.request_ids.values())
        for request_id, row in zip(ids, data):
            if request_id not in context.cache:
                context.cache[request_id] = {"word": row["body"]["word"], "at": 0}
        answers = [self.letter(context.cache[request_id], len(ids), context) for request_id in ids]
        context.stopping_criteria = [self.criterion(context, request_id) for request_id in ids]
        return answers

    def letter(self, job, live, context):
        """The next letter; `#` tells how many are live, `?` how many are remembered."""
        letter = job["word"][job["at"]]
        job["at"] += 1
        if letter == "!":
            raise ValueError("ordered")
        return {"#": str(live), "?": str(len(context.cache))}.get(letter, letter)

    def criterion(self, context, request_id):
        """Stops after the last letter."""

        def stop(_):
            job = context.cache[request_id]
            if job["at"] < len(job["word"]):
                return False
            del context.cache[request_id]
            return True

        return stop

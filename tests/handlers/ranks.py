"""Adds a number up over the ranks of its worker, after a piece that says that it is about to."""

import torch
import torch.distributed as dist

from ts.handler_utils.utils import send_intermediate_predict_response


class Summing:
    def initialize(self, context):
        dist.init_process_group("gloo")

    def handle(self, data, context):
        send_intermediate_predict_response(["0"], context.request_ids, "Intermediate Prediction success", 200, context)
        number = torch.tensor(int(bytes(data[0]["body"])))
        dist.all_reduce(number)
        return [str(number.item())]

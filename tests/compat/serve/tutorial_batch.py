"""The batching tutorial of Ray Serve 0.8, written anew from its text: a vectorised adder."""

import json
import os
import time

import numpy as np
import ray
import requests
from ray import serve

PORT = int(os.environ.get("PORT", "8000"))


@serve.accept_batch
def batch_adder_v0(flask_requests: list):
    numbers = [int(request.args["number"]) for request in flask_requests]
    input_array = np.array(numbers)
    print("Our input array has shape:", input_array.shape)
    time.sleep(0.2)
    output_array = input_array + 1
    return output_array.astype(int).tolist()


ray.init(num_cpus=10, include_dashboard=False)
serve.init(http_port=PORT)
serve.create_backend("adder:v0", batch_adder_v0, config={"max_batch_size": 4})
serve.create_endpoint("adder", backend="adder:v0", route="/adder", methods=["GET"])


@ray.remote
def send_query(number):
    resp = requests.get(f"http://localhost:{PORT}/adder?number={number}")
    return int(resp.text)


results = ray.get([send_query.remote(i) for i in range(9)])
print("Result returned:", results)


@serve.accept_batch
def batch_adder_v1(flask_requests: list, *, numbers: list = ()):
    if serve.context.web:
        numbers = [int(request.args.get("number")) for request in flask_requests]
    input_array = np.array(numbers)
    print("Our input array has shape:", input_array.shape)
    time.sleep(0.2)
    output_array = input_array + 1
    return output_array.astype(int).tolist()


serve.create_backend("adder:v1", batch_adder_v1, config={"max_batch_size": 4})
serve.set_traffic("adder", {"adder:v1": 1})

handle = serve.get_handle("adder")
object_refs = [handle.remote(numbers=i) for i in range(9)]
python_results = ray.get(object_refs)
print("Result returned:", python_results)


def single_request(flask_request, *, python_arg: int = 0):
    return (int(flask_request.args["number"]) if serve.context.web else python_arg) * 2


serve.create_backend("double", single_request)
serve.create_endpoint("double", backend="double", route="/double", methods=["GET", "POST"])
double = serve.get_handle("double")
answers = {
    "web": results,
    "python": python_results,
    "both": requests.get(f"http://localhost:{PORT}/adder?number=41").text,
    "single": [requests.get(f"http://localhost:{PORT}/double?number=21").text, ray.get(double.remote(python_arg=4))],
    "not allowed": requests.post(f"http://localhost:{PORT}/adder").status_code,
}
print(json.dumps(answers))

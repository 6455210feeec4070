"""The last code block of BentoML's page about adaptive batching."""

import bentoml
import torch


class MyRunnable(bentoml.Runnable):
    def __init__(self):
        super().__init__()
        # if torch.cuda.device_count():
        if torch.cuda.is_available():
            self.device_id = "cuda"
            # by default, torch.FloatTensor will be used on CPU.
            torch.set_default_tensor_type("torch.cuda.FloatTensor")
        else:
            self.device_id = "cpu"
        self.model = bentoml.pytorch.load_model("my_pytorch_model", device_id=self.device_id)
        # We want to turn off dropout and batchnorm when running inference.
        self.model.train(False)

    @bentoml.Runnable.method(batchable=True)
    def __call__(self, **batch):
        # Our model accepts a dictionary of Tensor as input, but we use ``**``
        # to deconstruct it to keyword arguments, so they can be batched rightly.
        # It works only if every parameter is "batchable" such as torch.Tensor/np.ndarray.
        # Move the tensors to the target device and pass it to the model as a dict.
        batch = {k: tensor.to(self.device_id) for k, tensor in batch.items()}
        with torch.inference_mode():
            return self.model(batch)


# Build the runner from the runnable manually, instead of calling model.to_runner() method
runner = bentoml.Runner(MyRunnable)
svc = bentoml.Service(name="my_ml_service", runners=[runner])


# Define an API endpoint for the inference
@svc.api(input=bentoml.io.JSON(), output=bentoml.io.JSON())
async def predict(api_input):
    # Deconstruct the input dictionary to keyword arguments for batching
    return await runner.async_run(**api_input)

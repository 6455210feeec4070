"""The older name of `azureml_inference_server_http.api.aml_response`."""

from azureml_inference_server_http.api.aml_response import AMLResponse

__all__ = ["AMLResponse"]

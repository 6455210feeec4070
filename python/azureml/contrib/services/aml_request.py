"""The older name of `azureml_inference_server_http.api.aml_request`."""

from azureml_inference_server_http.api.aml_request import AMLRequest, rawhttp

__all__ = ["AMLRequest", "rawhttp"]

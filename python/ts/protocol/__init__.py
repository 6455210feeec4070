"""The worker protocol of TorchServe's own frontend, for code and tests that import it.

Jitney never starts any of it: its workers are `python -m jitney.worker` and use another protocol. It consists of this
package (`otf_reading`, `otf_writing` and `otf_message_handler`, which has both under TorchServe's names) and of
`ts.model_service_worker`, `ts.service`, `ts.async_service`, `ts.model_loader` and `ts.arg_parser`. Loading, inputs,
outputs and failures are those of Jitney's workers (`jitney.torchserve`), so both always agree.
"""

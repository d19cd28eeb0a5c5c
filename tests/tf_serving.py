"""Flags and configurations of TF Serving, among them those of serving/.

Flags and messages are those of release 2.15.1.
"""

from __future__ import annotations

import functools
import pathlib
import re

from google.protobuf import (
    descriptor_pb2,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

ROOT = pathlib.Path(__file__).parent.parent
FOLDER = ROOT / "serving"
IMAGE = "tensorflow/serving:2.15.1"  # later ones take the same files

# Of tensorflow_model_server 2.15.1: tensorflow_serving/model_servers/main.cc.
FLAGS = set(
    """
    port grpc_socket_path rest_api_port rest_api_num_threads
    rest_api_timeout_in_ms rest_api_enable_cors_support enable_batching
    allow_version_labels_for_unavailable_models batching_parameters_file
    enable_per_model_batching_parameters model_config_file
    model_config_file_poll_wait_seconds model_name model_base_path
    num_load_threads num_unload_threads max_num_load_retries
    load_retry_interval_micros file_system_poll_wait_seconds
    flush_filesystem_caches tensorflow_session_parallelism
    tensorflow_session_config_file tensorflow_intra_op_parallelism
    tensorflow_inter_op_parallelism use_alts_credentials ssl_config_file
    platform_config_file per_process_gpu_memory_fraction saved_model_tags
    grpc_channel_arguments grpc_max_threads enable_model_warmup
    num_request_iterations_for_warmup version monitoring_config_file
    remove_unused_fields_from_bundle_metagraph prefer_tflite_model
    num_tflite_pools num_tflite_interpreters_per_pool
    enable_signature_method_name_check xla_cpu_compilation_enabled
    enable_profiler thread_pool_factory_config_file mixed_precision
    skip_initialize_tpu enable_grpc_healthcheck_service
    """.split()
)
# Messages that tensorflow-serving-api does not ship, field by field, of
# servables/tensorflow/session_bundle_config.proto and
# config/monitoring_config.proto.
MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": "google.protobuf.Int64Value",
        "batch_timeout_micros": "google.protobuf.Int64Value",
        "max_enqueued_batches": "google.protobuf.Int64Value",
        "num_batch_threads": "google.protobuf.Int64Value",
        "thread_pool_name": "google.protobuf.StringValue",
        "enable_large_batch_splitting": "google.protobuf.BoolValue",
        "max_execution_batch_size": "google.protobuf.Int64Value",
        "allowed_batch_sizes": "repeated int64",
        "pad_variable_length_inputs": "bool",
    },
    "PrometheusConfig": {"enable": "bool", "path": "string"},
    "MonitoringConfig": {"prometheus_config": "serving.PrometheusConfig"},
}


@functools.cache
def message_classes():
    file = descriptor_pb2.FileDescriptorProto(
        name="serving.proto", package="serving", syntax="proto3"
    )
    wrappers = descriptor_pb2.FileDescriptorProto()
    wrappers_pb2.DESCRIPTOR.CopyToProto(wrappers)
    file.dependency.append(wrappers.name)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            message.field.append(make_field(field, number, kind))
    return message_factory.GetMessages([wrappers, file])


def make_field(name, number, kind):
    kinds = descriptor_pb2.FieldDescriptorProto
    label, kind = re.fullmatch(r"(repeated )?(.+)", kind).groups()
    field = kinds(name=name, number=number, label=kinds.LABEL_OPTIONAL)
    if label:
        field.label = kinds.LABEL_REPEATED
    if "." in kind:
        field.type, field.type_name = kinds.TYPE_MESSAGE, f".{kind}"
    else:
        field.type = getattr(kinds, f"TYPE_{kind.upper()}")
    return field


def parse_config(name, text=None):
    """The message in a configuration of serving/, or in a text of its kind."""
    kinds = {
        "models.config": model_server_config_pb2.ModelServerConfig,
        "batching.config": message_classes()["serving.BatchingParameters"],
        "monitoring.config": message_classes()["serving.MonitoringConfig"],
    }
    text = (FOLDER / name).read_text() if text is None else text
    return text_format.Parse(text, kinds[name]())


def monitoring_path():
    return parse_config("monitoring.config").prometheus_config.path


def served_models():
    listed = parse_config("models.config").model_config_list.config
    return {model.name: model for model in listed}


def check_model(model):
    """Asserts that TF Serving would load `model`, and find its labels."""
    pinned = model.model_version_policy.specific.versions
    assert len(set(pinned)) == len(pinned) > 0
    assert set(model.version_labels.values()) <= set(pinned)
    assert "stable" in model.version_labels
    assert all(re.fullmatch(r"\w+", label) for label in model.version_labels)


def parse_flags(arguments):
    """Flags of tensorflow_model_server, all of which exist."""
    flags = {}
    for argument in arguments:
        name, _, value = argument.partition("=")
        assert name.startswith("--") and name[2:] in FLAGS, argument
        flags[name[2:]] = value
    return flags

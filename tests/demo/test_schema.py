"""The service conforms to its OpenAPI schema, for valid and invalid requests."""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from torchcaps.demo.app import create_app
from torchcaps.demo.served import load_pretrained_models

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
app = create_app(load_pretrained_models())
# from_asgi would start the service, and with it the compilation of its kernels, while pytest collects tests.
schema = schemathesis.openapi.from_dict(app.openapi())
schema.app = app
rejection = schema.config.checks.negative_data_rejection
rejection.expected_statuses = [*rejection.expected_statuses, "413"]  # too large is rejected too, before it is parsed


@schema.parametrize()
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_conforms_to_the_schema(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)

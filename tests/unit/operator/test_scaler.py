"""KEDA's calls, by a real gRPC client that reads the messages by protobuf's own code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tidemill_operator.doors.advising import Advisor
from tidemill_operator.doors.scaler import SERVICE, Scaler, serve

FIELDS = {
    "ScaledObjectRef": (("name", 1, 9, ""), ("namespace", 2, 9, ""), ("scalerMetadata", 3, 11, "Entry")),
    "IsActiveResponse": (("result", 1, 8, ""),),
    "GetMetricSpecResponse": (("metricSpecs", 1, 11, "MetricSpec"),),
    "MetricSpec": (("metricName", 1, 9, ""), ("targetSize", 2, 3, ""), ("targetSizeFloat", 3, 1, "")),
    "GetMetricsRequest": (("scaledObjectRef", 1, 11, "ScaledObjectRef"), ("metricName", 2, 9, "")),
    "GetMetricsResponse": (("metricValues", 1, 11, "MetricValue"),),
    "MetricValue": (("metricName", 1, 9, ""), ("metricValue", 2, 3, ""), ("metricValueFloat", 3, 1, "")),
    "Entry": (("key", 1, 9, ""), ("value", 2, 9, "")),
}
"""Of each message its fields: name, number, protobuf's number of the type, and of which message it is."""
REPEATED = {"scalerMetadata", "metricSpecs", "metricValues"}
GROUP = {
    "group": "g0", "master": "g0-0", "retired": False, "problem": "",
    "brokers": [{"name": "g0-0", "addresses": {"control": "b:7401"}}],
}  # fmt: skip
ROW = {
    "group": "billing", "subject": "orders", "lag": 40, "in_flight": 2, "failed": 0, "dead": 0, "acked": 7,
    "consumers": 3,
}  # fmt: skip


def messages() -> dict[str, Any]:
    """Their classes. A map is a list of entries on the wire."""
    file = descriptor_pb2.FileDescriptorProto(name="s.proto", package="externalscaler", syntax="proto3")
    for name, fields in FIELDS.items():
        made = file.message_type.add(name=name)
        for field, number, kind, of in fields:
            label = 3 if field in REPEATED else 1
            one = made.field.add(name=field, number=number, type=kind, label=label)  # type: ignore[arg-type]
            if of:
                one.type_name = f".externalscaler.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"externalscaler.{name}"))
        for name in FIELDS
    }


MESSAGES = messages()


def reference(**metadata: str) -> Any:
    entries = [MESSAGES["Entry"](key=key, value=value) for key, value in metadata.items()]
    return MESSAGES["ScaledObjectRef"](name="scaled", namespace="shop", scalerMetadata=entries)


ORDERS = {"cluster": "prod", "subject": "orders", "group": "billing"}


class Cluster:
    """What meta and a broker answer."""

    def __init__(self) -> None:
        self.groups: list[Any] = [GROUP]
        self.rows: list[Any] = [ROW]
        self.away = False

    async def ask(self, server: str, path: str) -> Any:
        if self.away:
            raise ConnectionRefusedError("connection refused")
        return {("", "/v1/brokers"): self.groups, ("b:7401", "/v1/groups"): self.rows}[server, path]


def run(
    scenario: Callable[[Cluster, Callable[..., Awaitable[Any]], grpc.aio.Channel], Awaitable[None]],
) -> None:
    async def main() -> None:
        cluster = Cluster()
        clock = count(step=60)  # no two looks share anything

        async def find(*which: str) -> Any:
            return cluster.ask if which == ("shop", "prod") else None

        advisor = Advisor(find, lambda: float(next(clock)))
        server, port = await serve(0, Scaler(advisor), "127.0.0.1")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:

            async def call(method: str, asked: Any, answer: str) -> Any:
                way = channel.unary_unary(
                    f"/{SERVICE}/{method}",
                    request_serializer=lambda one: one.SerializeToString(),
                    response_deserializer=MESSAGES[answer].FromString,
                )
                return await way(asked, timeout=10)

            try:
                await scenario(cluster, call, channel)
            finally:
                await server.stop(None)

    asyncio.run(main())


def test_keda_is_told_how_many_consumers_are_recommended() -> None:
    async def scenario(cluster: Cluster, call: Any, _: grpc.aio.Channel) -> None:
        asked = reference(**ORDERS, maxReplicas="7")
        assert (await call("IsActive", asked, "IsActiveResponse")).result is True
        [spec] = (await call("GetMetricSpec", asked, "GetMetricSpecResponse")).metricSpecs
        assert (spec.metricName, spec.targetSizeFloat) == ("tidemill-orders-billing", 1.0)
        wanted = MESSAGES["GetMetricsRequest"](scaledObjectRef=asked, metricName=spec.metricName)
        [value] = (await call("GetMetrics", wanted, "GetMetricsResponse")).metricValues
        assert (value.metricName, value.metricValueFloat) == (spec.metricName, 3.0)

        cluster.rows = [{**ROW, "lag": 0, "in_flight": 0}]
        assert (await call("IsActive", asked, "IsActiveResponse")).result is False
        cluster.rows = []
        few = reference(**ORDERS, minReplicas="2")
        wanted = MESSAGES["GetMetricsRequest"](scaledObjectRef=few, metricName=spec.metricName)
        [value] = (await call("GetMetrics", wanted, "GetMetricsResponse")).metricValues
        assert value.metricValueFloat == 2.0

    run(scenario)


def test_a_stream_says_at_once_whether_anybody_has_to_be_there() -> None:
    async def scenario(_: Cluster, __: Any, channel: grpc.aio.Channel) -> None:
        way = channel.unary_stream(
            f"/{SERVICE}/StreamIsActive",
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=MESSAGES["IsActiveResponse"].FromString,
        )
        stream = way(reference(**ORDERS), timeout=10)
        assert (await stream.read()).result is True
        stream.cancel()

    run(scenario)


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ({"cluster": "prod", "subject": "orders"}, "the trigger's metadata has no group"),
        ({"subject": "orders", "group": "billing"}, "the trigger's metadata has no cluster"),
        ({**ORDERS, "maxReplicas": "many"}, "maxReplicas is 'many': write a whole number from 0 to 10000"),
        ({**ORDERS, "minReplicas": "9", "maxReplicas": "3"}, "minReplicas not above maxReplicas"),
        ({**ORDERS, "drainSeconds": "0"}, "write drainSeconds above 0"),
    ],
)
def test_a_scaled_object_that_cannot_be_is_refused_with_a_sentence(
    metadata: dict[str, str], sentence: str
) -> None:
    async def scenario(_: Cluster, call: Any, __: grpc.aio.Channel) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call("GetMetricSpec", reference(**metadata), "GetMetricSpecResponse")
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert sentence in str(refused.value.details())

    run(scenario)


def test_what_cannot_be_asked_is_no_reason_to_scale() -> None:
    async def scenario(cluster: Cluster, call: Any, _: grpc.aio.Channel) -> None:
        cluster.away = True
        with pytest.raises(grpc.aio.AioRpcError) as away:
            await call("IsActive", reference(**ORDERS), "IsActiveResponse")
        assert (away.value.code(), away.value.details()) == (
            grpc.StatusCode.UNAVAILABLE, "meta does not answer /v1/brokers: connection refused",
        )  # fmt: skip
        cluster.away = False
        cluster.groups = [{**GROUP, "master": "", "problem": "no replica in sync lives"}]
        with pytest.raises(grpc.aio.AioRpcError) as unled:
            await call("IsActive", reference(**ORDERS), "IsActiveResponse")
        assert unled.value.code() is grpc.StatusCode.UNAVAILABLE

        with pytest.raises(grpc.aio.AioRpcError) as elsewhere:
            await call("IsActive", reference(**{**ORDERS, "cluster": "other"}), "IsActiveResponse")
        assert elsewhere.value.details() == "there is no QueueCluster other in shop that has a meta"

        cluster.groups = [{**GROUP, "master": "", "retired": True}]
        assert (await call("IsActive", reference(**ORDERS), "IsActiveResponse")).result is False

    run(scenario)


def test_the_call_that_is_optional_is_not_there() -> None:
    async def scenario(_: Cluster, call: Any, __: grpc.aio.Channel) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call("StreamMetricSpec", reference(**ORDERS), "GetMetricSpecResponse")
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED

    run(scenario)

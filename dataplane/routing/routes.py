"""The routing table, made ready for requests: names to endpoints, numbers in order, addresses parsed. Immutable."""

from contract.routing_table import Endpoint, Instance, RoutingTable, Strategy, Variant
from dataplane.host import Address
from dataplane.routing.instance_order import RANKS, InstanceOrder


class VariantRoutes:
    """One variant with what each request needs of it."""

    __slots__ = ("addresses", "host_authorization", "instances", "is_long", "label", "name", "number_of", "numbers",
                 "order", "positions", "prefix_length", "strategy", "strategy_name", "threshold",
                 "weight")  # fmt: skip

    def __init__(self, variant: Variant, before: "VariantRoutes | None" = None) -> None:
        """``before``: the variant of that name in the last table; of the same instances, its order is kept."""
        self.name = variant.name
        self.label = variant.name.encode()
        """The name for a header."""
        self.weight = variant.weight
        self.strategy: Strategy = variant.strategy
        self.strategy_name: str = variant.strategy.value
        self.prefix_length = variant.prefix_length or 0
        self.threshold = variant.concurrency_threshold or 0
        self.host_authorization = variant.host_authorization
        self.instances: tuple[Instance, ...] = variant.instances
        self.numbers = tuple(instance.number for instance in variant.instances)
        self.number_of = {instance.identity: instance.number for instance in variant.instances}
        self.positions = {number: position for position, number in enumerate(self.numbers)}
        self.addresses = tuple(Address.of(instance.base_url) for instance in variant.instances)
        if before is not None and list(self.number_of.items()) == list(before.number_of.items()):
            # What it remembers took some 100 us a key with a thousand instances.
            self.order: InstanceOrder = before.order
        else:
            self.order = InstanceOrder([instance.identity for instance in variant.instances], self.numbers)
        self.is_long = len(self.numbers) > RANKS
        """Whether the first ranks are not all of them."""


class EndpointRoutes:
    """One endpoint."""

    __slots__ = ("created", "endpoint", "id", "name", "tenant", "variants")

    def __init__(self, endpoint: Endpoint, before: "EndpointRoutes | None" = None) -> None:
        self.endpoint = endpoint
        self.name = endpoint.name
        self.id = endpoint.id
        self.created = endpoint.created
        self.tenant = endpoint.tenant
        known = {variant.name: variant for variant in before.variants} if before is not None else {}
        self.variants: tuple[VariantRoutes, ...] = tuple(
            VariantRoutes(variant, known.get(variant.name)) for variant in endpoint.variants
        )


class Routes:
    """One whole table. Requests keep the one they started with."""

    __slots__ = ("account_id", "addresses", "endpoints", "region", "table")

    def __init__(self, table: RoutingTable, before: "Routes | None" = None) -> None:
        """``before``: the last table; what it has ready of endpoints that did not change is taken over.

        One change among a thousand endpoints would else hold up all requests for as long as reading all of them takes.
        """
        self.table = table
        self.account_id = table.account_id
        self.region = table.region
        known = before.endpoints if before is not None else {}
        self.endpoints: dict[str, EndpointRoutes] = {
            endpoint.name: _routes_of(endpoint, known.get(endpoint.name)) for endpoint in table.endpoints
        }
        self.addresses = {
            address
            for endpoint in self.endpoints.values()
            for variant in endpoint.variants
            for address in variant.addresses
        }

    def instances(self) -> "dict[str, tuple[Instance, Variant]]":
        """Return identity -> (instance, a variant that it is bound to)."""
        return {
            instance.identity: (instance, variant)
            for endpoint in self.table.endpoints
            for variant in endpoint.variants
            for instance in variant.instances
        }


def _routes_of(endpoint: Endpoint, before: EndpointRoutes | None) -> EndpointRoutes:
    return before if before is not None and before.endpoint == endpoint else EndpointRoutes(endpoint, before)

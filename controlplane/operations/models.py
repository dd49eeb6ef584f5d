"""CreateModel, DescribeModel, ListModels, DeleteModel. A model is immutable; its static hosts are its pool's first."""

from typing import Any

from access.addresses import is_metadata_host
from controlplane.errors import ValidationException, existing_model, not_found_model
from controlplane.operations.context import Context
from controlplane.operations.listing import list_page
from controlplane.shapes.base import Failure
from controlplane.shapes.hosts import (
    AUTHORIZATION_VARIABLE,
    HIDDEN,
    HOSTS_VARIABLE,
    METADATA,
    PING_PATH_DEFAULT,
    PING_PATH_VARIABLE,
    host_of,
    split_hosts,
)
from controlplane.shapes.messages import failures_message
from controlplane.shapes.models import (
    CreateModelInput,
    CreateModelOutput,
    DeleteModelInput,
    DescribeModelInput,
    DescribeModelOutput,
    ListModelsInput,
    ListModelsOutput,
    ModelSummary,
)
from controlplane.store import hosts, named, tags
from controlplane.store.tables import Model, ModelHost


async def create_model(context: Context, request: CreateModelInput) -> CreateModelOutput:
    """Raises ValidationException if the name is taken, or a host of WARMROUTE_HOSTS cannot be had: it is known under
    another HostName, is another tenant's, or is a metadata service."""
    arn = context.arn("model", request.ModelName)
    sent = request.to_wire()
    sent.pop("Tags", None)
    model = Model(
        name=request.ModelName,
        tenant=context.caller.tenant,
        ping_path=request.environment.get(PING_PATH_VARIABLE, PING_PATH_DEFAULT),
        sent=sent,
        created_at=context.now,
    )
    if AUTHORIZATION_VARIABLE in request.environment:
        model.host_authorization = context.seal(request.environment[AUTHORIZATION_VARIABLE])
        _container(model)["Environment"][AUTHORIZATION_VARIABLE] = HIDDEN
    try:
        await named.insert(context.session, model)
    except named.NameTaken:
        raise existing_model(arn) from None
    await tags.put(context.session, tags.resource_of(model), {tag.Key: tag.Value for tag in request.Tags or ()})
    if HOSTS_VARIABLE in request.environment:
        await _add_static_hosts(context, model, split_hosts(request.environment[HOSTS_VARIABLE]))
    return CreateModelOutput(ModelArn=arn)


async def _add_static_hosts(context: Context, model: Model, urls: tuple[str, ...]) -> None:
    await hosts.lock_pools(context.session)
    for number, url in enumerate(urls, start=1):
        if not context.metadata_hosts and is_metadata_host(host_of(url)):
            raise _refused(model, f"Entry {number} is no base URL of a model host: {METADATA}")
        user = await hosts.user_of_url(context.session, url, url, context.now)
        if user is not None and user.tenant == model.tenant:
            raise _refused(
                model,
                f'Entry {number} is already known as HostName "{user.identity}"; register it for this model under that '
                "name with RegisterModelHost, or deregister it first",
            )
        try:
            if user is not None:
                raise hosts.OfAnotherTenant
            host, _ = await hosts.put_host(context.session, url, url, context.now, model.tenant)
        except hosts.OfAnotherTenant:
            raise _refused(model, f"Entry {number} is in use by another tenant") from None
        await hosts.put_member(
            context.session,
            ModelHost(model_id=model.id, host_id=host.id, source="Environment", registered_at=context.now),
        )


def _container(model: Model) -> dict[str, Any]:
    """Return the model's one container as it was sent."""
    found: dict[str, Any] = model.sent.get("PrimaryContainer") or model.sent["Containers"][0]
    return found


def _refused(model: Model, constraint: str) -> ValidationException:
    container = ("PrimaryContainer",) if "PrimaryContainer" in model.sent else ("Containers", 0)
    return ValidationException(failures_message([Failure((*container, "Environment", HOSTS_VARIABLE), constraint)]))


async def describe_model(context: Context, request: DescribeModelInput) -> DescribeModelOutput:
    model = await find_model(context, request.ModelName)
    return DescribeModelOutput.model_validate(
        {**model.sent, "CreationTime": model.created_at, "ModelArn": context.arn("model", model.name)}
    )


async def list_models(context: Context, request: ListModelsInput) -> ListModelsOutput:
    models, token = await list_page(context, Model, request)
    summaries = tuple(
        ModelSummary(ModelName=model.name, ModelArn=context.arn("model", model.name), CreationTime=model.created_at)
        for model in models
    )
    return ListModelsOutput(Models=summaries, NextToken=token)


async def delete_model(context: Context, request: DeleteModelInput) -> None:
    """Forget the model and its pool. Endpoints that use it go on with the hosts they have."""
    model = await find_model(context, request.ModelName, lock=True)
    await tags.remove(context.session, tags.resource_of(model))
    await context.session.delete(model)


async def find_model(context: Context, name: str, *, owner: str = "", lock: bool = False) -> Model:
    """Return the model, held if ``lock``. Raises ValidationException if there is none of that name.

    ``owner``: tenant of what is to use it; a tenant's things use its own only, whoever asks for it.
    """
    model = await named.find(context.session, Model, name, tenant=context.caller.tenant or owner, lock=lock)
    if model is None:
        raise not_found_model(context.arn("model", name))
    return model

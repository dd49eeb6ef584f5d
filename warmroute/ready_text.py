"""What ``warmroute up`` prints when it is ready: URLs, calls that work as pasted, and one line to wait for."""

import os
import shlex
import sys
from pathlib import Path
from typing import Protocol

from contract.settings import Settings
from warmroute import demo, network
from warmroute.first_keys import ADMIN_KEY, DEMO_KEY, FirstKeys

_ANY_KEYS = 'region_name="{region}", aws_access_key_id="any", aws_secret_access_key="any"'
"""AUTH is off, but boto3 insists on a region and on credentials."""
_REAL_KEYS = 'region_name="{region}"'
"""AUTH is on: the credentials are in a file that boto3 is told of."""

# Neither indented nor commented: here-documents bear no leading spaces, and some shells no pasted comments.
_CALLS = """
Ask the endpoint {name}, from another terminal in this directory.

With curl:

curl -s {data}/v1/chat/completions -H 'Content-Type: application/json' {bearer}\\
  -d '{{"model": "{name}", "messages": [{{"role": "user", "content": "Tell me a story"}}], "max_tokens": 16}}'

With boto3:

{boto3}

With openai:

{openai}

And the control plane, as plain REST:

curl -s {control}/DescribeEndpoint {signed}-d '{{"EndpointName": "{name}"}}'
"""

_BOTO3 = """
import boto3
runtime = boto3.client("sagemaker-runtime", endpoint_url="{data}",
                       {keys})
answer = runtime.invoke_endpoint(EndpointName="{name}", ContentType="application/json",
                                 Body=b'{{"inputs": "Tell me a story", "parameters": {{"max_new_tokens": 16}}}}')
print(answer["InvokedProductionVariant"], answer["Body"].read().decode())
"""

_OPENAI = """
from openai import OpenAI
client = OpenAI(base_url="{data}/v1", api_key={api_key})
chat = client.chat.completions.create(model="{name}", max_tokens=16,
                                      messages=[{{"role": "user", "content": "Tell me a story"}}])
print(chat.choices[0].message.content)
"""

_NO_DEMO = """
There is no endpoint yet. Put your own model hosts behind one:

{boto3}
"""

_OWN_HOSTS = """
import boto3
sagemaker = boto3.client("sagemaker", endpoint_url="{control}",
                         {keys})
sagemaker.create_model(ModelName="llama", PrimaryContainer={{
    "Image": "vllm/vllm-openai",
    "Environment": {{"WARMROUTE_HOSTS": "http://127.0.0.1:8000,http://127.0.0.1:8001",
                    "WARMROUTE_PING_PATH": "/health"}}}})
sagemaker.create_endpoint_config(EndpointConfigName="llama", ProductionVariants=[{{
    "VariantName": "all", "ModelName": "llama", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 2,
    "RoutingConfig": {{"RoutingStrategy": "PREFIX_AWARE",
                      "PrefixAwareRoutingConfig": {{"PrefixLength": 4096, "ConcurrencyThreshold": 8}}}}}}])
sagemaker.create_endpoint(EndpointName="llama", EndpointConfigName="llama")
sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="llama")
"""


class Started(Protocol):
    """What is running."""

    @property
    def control_port(self) -> int: ...
    @property
    def data_port(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def hosts(self) -> int: ...
    @property
    def data_dir(self) -> Path: ...


def write(started: Started, settings: Settings, keys: FirstKeys | None, seconds: float) -> str:
    """Return the text. Its last line starts ``warmroute ready`` and is the only one that does."""
    control, data = network.url("127.0.0.1", started.control_port), network.url("127.0.0.1", started.data_port)
    values = {"control": control, "data": data, "name": demo.NAME, **_access(started.data_dir, settings, keys)}
    if started.hosts:
        calls = _CALLS.format(boto3=_python(_BOTO3, values), openai=_python(_OPENAI, values), **values)
    else:
        calls = _NO_DEMO.format(boto3=_python(_OWN_HOSTS, values))
    hosts = f"{started.hosts} simulated host{'s' * (started.hosts != 1)} behind endpoint {demo.NAME}"
    lines = [
        calls,
        f"Control plane  {control}   SageMaker's API for models and endpoints; all of it: {control}/docs",
        f"Data plane     {data}   {started.workers} worker{'s' * (started.workers != 1)}; counters: {data}/metrics",
        f"Hosts          {hosts if started.hosts else 'none simulated'}",
        f"Logs           {started.data_dir / 'logs'}",
        *_access_lines(started.data_dir, keys),
        "",
        f"warmroute ready in {seconds:.1f} s: control plane {control}, data plane {data}; Ctrl-C ends it",
    ]
    return "\n".join(lines)


def _access(data_dir: Path, settings: Settings, keys: FirstKeys | None) -> dict[str, str]:
    """Return the parts of calls that show who calls."""
    if keys is None:
        any_keys = _ANY_KEYS.format(region=settings.region)
        return {"keys": any_keys, "api_key": '"any"', "bearer": "", "signed": "", "file": ""}
    api_key, credentials = (shlex.quote(str(data_dir / file)) for file in (DEMO_KEY, ADMIN_KEY))
    user = f"$(sed -n 's/.*= //p' {credentials} | paste -sd: -)"
    return {
        "keys": _REAL_KEYS.format(region=settings.region),
        "api_key": f"open({str(data_dir / DEMO_KEY)!r}).read().strip()",
        "bearer": f'-H "Authorization: Bearer $(cat {api_key})" ',
        "signed": f"-H 'Content-Type: application/json' --aws-sigv4 aws:amz:{settings.region}:sagemaker \\\n"
        f'  --user "{user}" ',
        "file": f"AWS_SHARED_CREDENTIALS_FILE={credentials} ",
    }


def _access_lines(data_dir: Path, keys: FirstKeys | None) -> list[str]:
    if keys is None:
        return ["Access         AUTH is off: whoever can reach these loopback ports may use them"]
    lines = [f"Access         AUTH is on; an administrator's key is in {data_dir / ADMIN_KEY}"]
    if keys.is_new:
        lines.append(
            f"               AccessKeyId {keys.admin.id}  SecretAccessKey {keys.admin.secret}  (shown this once)"
        )
    return lines


def _python(program: str, values: dict[str, str]) -> str:
    """Return a shell command that runs ``program`` with our interpreter."""
    interpreter = os.path.relpath(sys.executable)
    if interpreter.startswith(os.pardir):
        interpreter = sys.executable
    file = values["file"] if "boto3" in program else ""
    return f"{file}{shlex.quote(interpreter)} - <<'PY'{program.format(**values)}PY"

"""Files that start replicas with the flags of a deployment's command: Docker Compose, Kubernetes, llm-d, Dynamo."""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from simulator.deployment.deployment import Deployment
from simulator.deployment.launch_command import launch_command
from simulator.errors import InfercastError, NotModelledError

TOKEN = "HF_TOKEN"  # noqa: S105  the name of a variable: a Hugging Face token, for gated models
SECRET, SECRET_KEY = "hf-token-secret", "token"  # as in vLLM's and Dynamo's guides
WEIGHTS = "/models"  # in the container; HF_HOME says so to huggingface_hub
LOADING_S, ASKED_EVERY_S = 1800, 10  # until a replica that answers no health check is started anew; between two checks
SHARED_MEMORY = "2Gi"  # /dev/shm, of vLLM's guide to Kubernetes: workers of one replica pass tensors through it
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Container:
    """An engine's official image, how many words of a command are its program, its port and health check.

    Sources, looked up 2026-11-23: vLLM docs.vllm.ai, deployment/docker and deployment/k8s; SGLang docs.sglang.io,
    get-started/install, and docker/compose.yaml; TensorRT-LLM nvidia.github.io/TensorRT-LLM, quick-start-guide.
    """

    image: str
    program: int
    port: int
    health: str = "/health"


CONTAINERS = {  # by preset: only a version whose image its project names
    "vllm-0.14": Container("vllm/vllm-openai:v0.14.0", 2, 8000),
    "vllm-0.19": Container("vllm/vllm-openai:v0.19.0", 2, 8000),
    "vllm-0.33": Container("vllm/vllm-openai:v0.33.0", 2, 8000),
    # The preset holds from 0.5.15 on. Of these versions SGLang's page names one tag, the last for CUDA 12
    "sglang-0.5.15": Container("lmsysorg/sglang:v0.5.19-cu129", 3, 30000),
    "tensorrt-llm-1.0": Container("nvcr.io/nvidia/tensorrt-llm/release:1.0.0", 1, 8000),
    "tensorrt-llm-1.2": Container("nvcr.io/nvidia/tensorrt-llm/release:1.2.0", 1, 8000),
}
DYNAMO_IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.4.0"  # of the reference of DynamoComponentDeployment, 1.4.0


@dataclass(frozen=True, slots=True)
class Launch:
    """Replicas of a deployment, started in containers; `image` instead of the engine's own, `repository` of weights.

    Raises NotModelledError for engines without an image here, devices that are not NVIDIA's, replicas over several
    hosts and checkpoints that have to be found first; InfercastError for fewer than one replica.
    """

    deployment: Deployment
    replicas: int = 1
    image: str = ""
    repository: str = ""

    def __post_init__(self) -> None:
        deployment, hardware = self.deployment, self.deployment.hardware
        command = "Give --as command"
        if self.replicas < 1:
            raise InfercastError(f"{self.replicas} replicas", "that starts nothing", "Give 1 or more")
        if deployment.engine.id not in CONTAINERS:
            known = ", ".join(CONTAINERS)
            raise NotModelledError(
                f"a container of {deployment.engine.id}", "its image is not known", f"Known: {known}"
            )
        if hardware.vendor.lower() != "nvidia":
            given, because = f"a container for {hardware.id}", "only NVIDIA's devices are known by name to Docker here"
            raise NotModelledError(given, because, command)
        if deployment.devices > hardware.host_devices:
            given = f"a container of {deployment.devices} devices"
            because = f"a host has {hardware.host_devices}, and replicas over several need Ray or LeaderWorkerSet"
            raise NotModelledError(given, because, command)
        if missing := re.search("<.*?>", " ".join(self.words)):
            given, because = f"a container with {missing[0]}", "which checkpoint that is is not known"
            raise NotModelledError(given, because, f"{command}, and put its name in")

    @property
    def container(self) -> Container:
        """The engine's container."""
        return CONTAINERS[self.deployment.engine.id]

    @property
    def words(self) -> list[str]:
        """The words of the command that starts a replica."""
        return shlex.split(launch_command(self.deployment, self.repository))

    @property
    def program(self) -> list[str]:
        """The words of the command before the model and its flags."""
        return self.words[: self.container.program]

    @property
    def flags(self) -> list[str]:
        """The model and its flags, and where the server listens: to all, as clients are outside of the container."""
        return [*self.words[self.container.program :], "--host", "0.0.0.0", "--port", str(self.container.port)]  # noqa: S104

    @property
    def name(self) -> str:
        """A name of model and engine that Kubernetes takes: RFC 1123, at most 63 characters."""
        text = f"{self.deployment.model.id}-{self.deployment.engine.engine}".lower()
        return re.sub(r"[^a-z0-9]+", "-", text)[:63].strip("-")


def launch_file(launch: Launch, kind: str) -> str:
    """Return the text of a file: "compose", "kubernetes", "llm-d" or "dynamo".

    Raises NotModelledError for another kind, and for what a kind cannot express.

    >>> from simulator.deployment.deployment import deploy
    >>> text = launch_file(Launch(deploy("llama-3.1-8b", "h100-sxm")), "compose")
    >>> text.splitlines()[2].strip()
    'image: vllm/vllm-openai:v0.33.0'
    """
    if kind not in KINDS:
        because = "its format is not written here"
        raise NotModelledError(f"a launch file for {kind}", because, f"Known: command, {', '.join(KINDS)}")
    documents = KINDS[kind](launch)
    several = len(documents) > 1
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=1000, explicit_start=several)


class _Dumper(yaml.SafeDumper):
    """Writes what occurs twice in full: people edit these files."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Return that nothing is an alias."""
        return True


def _compose(launch: Launch) -> list[Document]:
    """Return a service for each replica, each with its own devices and its own port of the host (compose-spec.io)."""
    container, devices = launch.container, launch.deployment.devices
    if launch.replicas * devices > (most := launch.deployment.hardware.host_devices):
        given = f"a Compose file of {launch.replicas} replicas on {launch.replicas * devices} devices"
        raise NotModelledError(given, f"it starts one host, which has {most}", "Give --as kubernetes")
    services = {}
    for index in range(launch.replicas):
        used = [str(index * devices + each) for each in range(devices)]
        url = f"http://localhost:{container.port}{container.health}"
        asks = f"import urllib.request; urllib.request.urlopen('{url}')"
        services[launch.name if launch.replicas == 1 else f"{launch.name}-{index}"] = {
            "image": launch.image or container.image,
            "entrypoint": launch.program,
            "command": launch.flags,
            "environment": [TOKEN, f"HF_HOME={WEIGHTS}"],
            "volumes": [f"weights:{WEIGHTS}"],
            "ports": [f"{container.port + index}:{container.port}"],
            "ipc": "host",
            "healthcheck": {
                "test": ["CMD", "python3", "-c", asks],
                "interval": f"{ASKED_EVERY_S}s",
                "start_period": f"{LOADING_S}s",
            },
            "deploy": {
                "resources": {
                    "reservations": {
                        "devices": [{"driver": "nvidia", "device_ids": used, "capabilities": ["gpu"]}],
                    }
                }
            },
        }
    return [{"services": services, "volumes": {"weights": {}}}]


@dataclass(frozen=True, slots=True)
class _Names:
    """What a project calls the engine's container, its port, and the secret and the key of the Hugging Face token."""

    container: str
    port: str
    secret: str
    key: str


def _kubernetes(launch: Launch) -> list[Document]:
    """Return a Deployment and the Service before it (kubernetes.io, apps/v1 and v1; the device plug-in of NVIDIA)."""
    labels = {"app.kubernetes.io/name": launch.name}
    deployment = _replicas(launch, labels, _Names("engine", "http", SECRET, SECRET_KEY))
    port = {"name": "http", "port": launch.container.port, "targetPort": "http"}
    service = {"selector": labels, "ports": [port]}
    return [deployment, {"apiVersion": "v1", "kind": "Service", "metadata": deployment["metadata"], "spec": service}]


def _llm_d(launch: Launch) -> list[Document]:
    """Return the Deployment that llm-d's router finds by its labels; the router is llm-d's own Helm chart.

    As in its guide optimized-baseline (github.com/llm-d/llm-d, main, looked up 2026-11-23): labels, container, port and
    path of health checks are of guides/optimized-baseline/modelserver/gpu/vllm, and matchLabels of the router's values
    is llm-d.ai/guide; the secret is that of its quickstart; the image is vLLM's (guides/recipes).
    A server that computes prompts and tokens has the role decode. Pools of prefill and decode are not written: `launch`
    asks for one deployment.
    """
    _require_vllm(launch, "an llm-d file", "the guide's server of vLLM")
    checkpoint = launch.words[launch.container.program]
    labels = {
        "llm-d.ai/guide": "optimized-baseline",
        "llm-d.ai/model": checkpoint.rpartition("/")[2][:63].rstrip("-._"),
        "llm-d.ai/role": "decode",
        "llm-d.ai/accelerator-variant": "gpu",
        "llm-d.ai/accelerator-vendor": "nvidia",
    }
    return [_replicas(launch, labels, _Names("modelserver", "modelserver", "llm-d-hf-token", TOKEN))]


def _require_vllm(launch: Launch, file: str, known: str) -> None:
    if (engine := launch.deployment.engine.engine) != "vllm":
        because = f"only {known} is written here"
        raise NotModelledError(f"{file} of {engine}", because, "Give --engine vllm, or --as kubernetes")


def _replicas(launch: Launch, labels: dict[str, str], names: _Names) -> Document:
    """Return a Deployment of apps/v1: each replica a pod with the labels."""
    template = {"metadata": {"labels": labels}, "spec": _pod(launch, names)}
    spec = {"replicas": launch.replicas, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": launch.name, "labels": labels}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def _pod(launch: Launch, names: _Names) -> Document:
    health = {"httpGet": {"path": launch.container.health, "port": names.port}, "periodSeconds": ASKED_EVERY_S}
    secret = {"name": names.secret, "key": names.key, "optional": True}
    container = {
        "name": names.container,
        "image": launch.image or launch.container.image,
        "command": launch.program,
        "args": launch.flags,
        "env": [{"name": TOKEN, "valueFrom": {"secretKeyRef": secret}}],
        "ports": [{"name": names.port, "containerPort": launch.container.port}],
        "resources": {"limits": {"nvidia.com/gpu": str(launch.deployment.devices)}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108  shared memory, not a file
        "startupProbe": {**health, "failureThreshold": LOADING_S // ASKED_EVERY_S},
        "readinessProbe": dict(health),
        "livenessProbe": {**health, "failureThreshold": 6},
    }
    volume = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}}
    return {"containers": [container], "volumes": [volume]}


def _dynamo(launch: Launch) -> list[Document]:
    """Return a frontend and workers (docs.nvidia.com/dynamo, DynamoGraphDeployment of nvidia.com/v1beta1).

    `dynamo.vllm` takes the flags of `vllm serve`, with the model under --model; the frontend listens.
    """
    _require_vllm(launch, "a Dynamo file", "its vLLM worker")
    image, model, *flags = launch.image or DYNAMO_IMAGE, *launch.words[launch.container.program :]
    common = {"name": "main", "image": image, "envFrom": [{"secretRef": {"name": SECRET}}]}
    worker = {
        **common,
        "command": ["python3", "-m", "dynamo.vllm"],
        "args": ["--model", model, *flags],
        "resources": {"limits": {"nvidia.com/gpu": str(launch.deployment.devices)}},
    }
    components = [
        {"name": "Frontend", "type": "frontend", "replicas": 1, "podTemplate": {"spec": {"containers": [common]}}},
        {
            "name": "worker",
            "type": "worker",
            "replicas": launch.replicas,
            "podTemplate": {"spec": {"containers": [worker]}},
        },
    ]
    head = {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": launch.name}}
    return [{**head, "spec": {"components": components}}]


KINDS: dict[str, Callable[[Launch], list[Document]]] = {
    "compose": _compose,
    "kubernetes": _kubernetes,
    "llm-d": _llm_d,
    "dynamo": _dynamo,
}

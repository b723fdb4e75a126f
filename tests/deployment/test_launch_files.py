"""Launch files start what was predicted: the command's flags, in files that Docker and Kubernetes read."""

import re
import shlex

import compose_spec
import kubernetes_validate
import pytest
import yaml

from simulator import InfercastError, Settings, Speculation, default_layout, deploy, load_model
from simulator.deployment.launch_command import launch_command
from simulator.deployment.launch_files import CONTAINERS, KINDS, Launch, launch_file
from simulator.engines.engine import engine_of, load_engine
from tests.support.for_each import for_each

LISTENS = ["--host", "0.0.0.0", "--port"]


def deployment(engine: str = "vllm", device: str = "h100-sxm", model: str = "qwen3-32b", **degrees):
    layout = default_layout(load_model(model), **(degrees or {"tp": 2}))
    return deploy(model, device, engine, layout, Settings(max_num_seqs=64))


def drafting(draft: str):
    return deploy("qwen3-32b", "h200-sxm", settings=Settings(speculation=Speculation(draft, 3, (0.7,))))


def documents(launch: Launch, kind: str) -> list[dict]:
    return list(yaml.safe_load_all(launch_file(launch, kind)))


@for_each("engine", ("vllm", "sglang", "tensorrt-llm"))
def test_files_hold_the_words_of_the_command(engine):
    chosen = deployment(engine)
    words = shlex.split(launch_command(chosen))
    launch = Launch(chosen)
    (service,) = documents(launch, "compose")[0]["services"].values()
    port = str(CONTAINERS[chosen.engine.id].port)
    assert service["entrypoint"] + service["command"] == [*words, *LISTENS, port]
    pod = documents(launch, "kubernetes")[0]["spec"]["template"]["spec"]["containers"][0]
    assert pod["command"] + pod["args"] == [*words, *LISTENS, port]
    assert service["image"] == pod["image"] == CONTAINERS[chosen.engine.id].image


def test_dynamo_has_the_flags_and_its_own_program():
    chosen = deployment()
    *_, worker = documents(Launch(chosen, 3), "dynamo")[0]["spec"]["components"]
    (container,) = worker["podTemplate"]["spec"]["containers"]
    assert ["vllm", "serve", *container["args"][1:]] == shlex.split(launch_command(chosen))
    assert container["command"] == ["python3", "-m", "dynamo.vllm"]
    assert worker["replicas"] == 3


def test_llm_d_gets_the_pods_of_kubernetes_under_its_own_names():
    chosen = deployment()
    (manifest,) = documents(Launch(chosen, 3), "llm-d")
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    plain = documents(Launch(chosen, 3), "kubernetes")[0]
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert labels == manifest["spec"]["selector"]["matchLabels"]
    assert (labels["llm-d.ai/model"], labels["llm-d.ai/role"]) == ("Qwen3-32B", "decode")
    assert manifest["spec"]["replicas"] == 3
    (container,), (same,) = (each["spec"]["template"]["spec"]["containers"] for each in (manifest, plain))
    assert container["name"] == container["ports"][0]["name"] == "modelserver"
    assert {container[probe]["httpGet"]["port"] for probe in container if "Probe" in probe} == {"modelserver"}
    assert container["env"][0]["valueFrom"]["secretKeyRef"]["name"] == "llm-d-hf-token"
    for key in ("image", "command", "args", "resources"):
        assert container[key] == same[key]


def test_a_models_name_is_a_label():
    for name in ("llama-3.1-8b", "gpt-oss-20b", "qwen3-30b-a3b"):
        (manifest,) = documents(Launch(deployment(model=name, tp=1)), "llm-d")
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
        label = manifest["metadata"]["labels"]["llm-d.ai/model"]
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", label)


def test_a_compose_file_is_one_and_each_replica_has_its_devices_and_port():
    text = launch_file(Launch(deployment(), 4), "compose")
    compose_spec.PyCompose.from_yaml(text).validate()
    services = yaml.safe_load(text)["services"].values()
    reserved = [each["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for each in services]
    assert reserved == [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"]]
    assert [each["ports"] for each in services] == [[f"{port}:8000"] for port in (8000, 8001, 8002, 8003)]


def test_kubernetes_takes_the_manifests():
    for each in documents(Launch(deployment(), 3), "kubernetes"):
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
    first, service = documents(Launch(deployment(), 3), "kubernetes")
    template = first["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert first["spec"]["replicas"] == 3
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"


def test_every_image_is_of_a_preset_and_its_version():
    for name, container in CONTAINERS.items():
        assert engine_of(load_engine(name).engine, container.image.rpartition(":")[2]).id == name


def test_a_file_holds_what_drafts_as_one_word():
    (service,) = documents(Launch(drafting("ngram")), "compose")[0]["services"].values()
    assert '{"method": "ngram", "prompt_lookup_max": 4, "num_speculative_tokens": 3}' in service["command"]


def test_nothing_is_an_alias():
    for kind in KINDS:
        text = launch_file(Launch(deployment(), 2), kind)
        assert not [word for word in text.split() if word[0] in "&*"]


@pytest.mark.parametrize(
    ("launch", "kind", "because"),
    [
        (lambda: Launch(deployment()), "aiconfigurator", "not written here"),
        (lambda: Launch(deployment(), 5), "compose", "which has 8"),
        (lambda: Launch(deployment("sglang")), "dynamo", "vLLM worker"),
        (lambda: Launch(deployment("sglang")), "llm-d", "server of vLLM"),
        (lambda: Launch(deployment("llama.cpp", "rtx-4090", "llama-3.1-8b", tp=1)), "compose", "image is not known"),
        (lambda: Launch(deployment("vllm", "mi300x")), "compose", "NVIDIA"),
        (lambda: Launch(deployment("vllm", "h100-sxm", tp=8, pp=2)), "kubernetes", "a host has 8"),
        (lambda: Launch(deployment(tp=2, dtypes=("int4", ""))), "compose", "which checkpoint"),
        (lambda: Launch(drafting("medusa")), "compose", "<medusa heads of Qwen/Qwen3-32B>: which checkpoint"),
        (lambda: Launch(deployment(), 0), "compose", "starts nothing"),
    ],
)
def test_what_is_not_written_is_refused_by_name(launch, kind, because):
    with pytest.raises(InfercastError, match=because):
        launch_file(launch(), kind)

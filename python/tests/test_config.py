"""Settings: their sources, precedence, and errors."""

import dataclasses
import re
from datetime import timedelta

import pytest

import podbay
from podbay import LocalConfig, RawConfig

SHARED = {"env", "labels", "ttl", "idle_ttl"}


def keys(prefix):
    return {setting.key.removeprefix(prefix) for setting in podbay.SETTINGS if setting.key.startswith(prefix)}


def test_dataclasses_have_exactly_the_settings():
    fields = {field.name for field in dataclasses.fields(LocalConfig)}
    assert fields == keys("local.") | SHARED | {"home"}
    fields = {field.name for field in dataclasses.fields(RawConfig)}
    assert fields == keys("raw.") | keys("cluster.") | SHARED
    choices = {setting.key: setting.choices for setting in podbay.SETTINGS if setting.kind == "choice"}
    for cls, prefix in ((LocalConfig, "local."), (RawConfig, "raw.")):
        for field in dataclasses.fields(cls):
            wanted = choices.get(prefix + field.name)
            assert wanted is None or all(word in field.type for word in wanted), field


def test_every_setting_can_be_given():
    examples = {
        "text": "x",
        "secret": "x",
        "flag": True,
        "count": 3,
        "real": 1.5,
        "size": "1MiB",
        "time": "90s",
        "quantity": "500m",
        "list": ["a, b", "c"],
        "mounts": ["/usr:/a"],
        "map": {"a": "1"},
        "object": {},
        "objects": [],
        "id": 7,
    }
    for setting in podbay.SETTINGS:
        if setting.key == "mode":
            continue
        value = setting.choices[0] if setting.kind == "choice" else examples[setting.kind]
        mode = "raw" if setting.key.startswith("raw.") else "local"
        entries = {key: (origin, text) for key, origin, text in podbay.effective_settings(mode, **{setting.key: value})}
        assert entries[setting.key][0] == "settings", setting
        assert setting.variable == "PODBAY_" + setting.key.upper().replace(".", "_")
        assert setting.help
        assert setting.default


def values(*arguments, **keywords):
    return {key: (origin, text) for key, origin, text in podbay.effective_settings(*arguments, **keywords)}


def test_code_beats_environment_beats_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "podbay.toml").write_text('ttl = "10s"\nidle_ttl = "10s"\n[local]\nmemory = "64MiB"\n')
    monkeypatch.setenv("PODBAY_IDLE_TTL", "20s")
    monkeypatch.setenv("PODBAY_LOCAL_MEMORY", "128MiB")
    found = values(memory="256MiB")
    assert found["ttl"] == ("podbay.toml", "10s")
    assert found["idle_ttl"] == ("environment", "20s")
    assert found["local.memory"] == ("settings", "256MiB")
    other = tmp_path / "other.toml"
    other.write_text("ttl = 5\n")
    assert values(config=other)["ttl"] == (str(other), "5s")
    assert values(config=str(other))["idle_ttl"] == ("environment", "20s")


def test_the_users_own_file_has_full_power(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "config/podbay/podbay.toml"
    own.parent.mkdir(parents=True)
    own.write_text('ttl = "2h"\n[local]\nnetwork = "host"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert values()["local.network"] == (str(own), "host")
    (tmp_path / "podbay.toml").write_text('ttl = "1h"\n')
    assert values()["ttl"] == ("podbay.toml", "1h")
    own.chmod(0o666)
    with pytest.raises(podbay.ConfigError, match="others can write"):
        values()


def test_a_file_in_the_working_directory_only_narrows(tmp_path, monkeypatch):
    """A sandbox that shares the working directory wrote a podbay.toml, and the next sandbox got the host's files."""
    monkeypatch.chdir(tmp_path)
    examples = {
        "flag": "true",
        "list": '["/x"]',
        "mounts": '["/:/host:rw"]',
        "map": '{ a = "b" }',
        "object": "{}",
        "objects": "[]",
    }
    for setting in podbay.SETTINGS:
        section, _, key = setting.key.rpartition(".")
        value = examples.get(setting.kind, f'"{setting.choices[-1]}"' if setting.choices else '"1"')
        (tmp_path / "podbay.toml").write_text(f"[{section}]\n{key} = {value}\n" if section else f"{key} = {value}\n")
        if setting.in_project == "no":
            with pytest.raises(podbay.ConfigError, match=re.escape(setting.key)):
                podbay.Sandbox()
            # If the file is named explicitly, it can set this.
            if setting.kind not in {"count", "real"}:
                assert setting.key in values(config=tmp_path / "podbay.toml")
    (tmp_path / "podbay.toml").write_text("[local]\nprocesses = 100000\n")
    with pytest.raises(podbay.ConfigError, match="only lower"):
        podbay.Sandbox()
    (tmp_path / "podbay.toml").write_text('[policy]\ndeny_commands = ["curl"]\n')
    assert values(deny_commands=["rm"])["policy.deny_commands"] == ("settings + podbay.toml", "rm,curl")


def test_limits_can_be_lifted():
    for word in ("none", "unlimited"):
        with podbay.Sandbox(processes=word, memory=word, descriptors=word, cpu=word) as sandbox:
            assert sandbox.run("true").exit_code == 0
    with podbay.Sandbox() as sandbox:
        assert sandbox.run("ulimit -n").output == "16384\n"


def test_names_need_no_section():
    assert values("raw", image="busybox")["raw.image"] == ("settings", "busybox")
    assert values("local", network="host")["local.network"] == ("settings", "host")
    assert values(config=RawConfig(image="x", node_selector={"a": "b"}))["mode"] == ("settings", "raw")
    assert values(config=LocalConfig(ttl=timedelta(minutes=1)))["ttl"] == ("settings", "1m")
    assert values(config={"memory": 1 << 20, "policy.deny_prefixes": ["/etc"]})["policy.deny_prefixes"][1] == "/etc"
    assert values(mounts=("/usr/share",))["local.mounts"] == ("settings", "/usr/share")
    assert values(memory=None) == values()


def test_what_makes_no_sense_is_refused():
    for arguments, word in (
        ({"memroy": 1}, "local.memory"),
        ({"memory": "lots"}, "512MiB"),
        ({"network": "some"}, "none, host"),
        ({"mode": "cloud"}, "local, raw"),
        ({"config": "/no/such/file.toml"}, "/no/such/file.toml"),
        ({"ttl": "soon"}, "90s"),
        ({"image": "x"}, "raw.image"),
    ):
        with pytest.raises(podbay.ConfigError, match=word) as raised:
            podbay.Sandbox(**arguments)
        assert isinstance(raised.value, ValueError)
    with pytest.raises(TypeError, match="object"):
        podbay.Sandbox(memory=object())
    with pytest.raises(TypeError, match="config"):
        podbay.Sandbox(config=7)
    with pytest.raises(ValueError, match="pass only one of them"):
        podbay.Sandbox("local", config=RawConfig())
    with pytest.raises(TypeError, match="labels"):
        podbay.Sandbox(labels=["a"])


def test_secrets_are_not_shown():
    assert values(env={"TOKEN": "hunter2"})["env"] == ("settings", "TOKEN=…")
    assert values("raw", token="hunter2")["cluster.token"] == ("settings", "…")
    assert "hunter2" not in repr(RawConfig(token="hunter2"))
    with pytest.raises(podbay.ConfigError, match="expected a string") as raised:
        values("raw", token=["hunter2"])
    assert "hunter2" not in str(raised.value)


def test_sizes_mean_the_same_as_on_the_command_line():
    assert values(memory="10MB")["local.memory"][1] == values(memory=10_000_000)["local.memory"][1]
    assert values(memory="10MiB")["local.memory"] == ("settings", "10MiB")


def test_the_cluster_has_a_section_of_its_own():
    found = values("raw", namespace="n", kubeconfig="k", context="c", api_url="https://x", token_file="/t")
    for key in ("namespace", "kubeconfig", "context", "api_url", "token_file"):
        assert found[f"cluster.{key}"][0] == "settings"
    with pytest.raises(podbay.ConfigError, match=r"it is now \"cluster\.namespace\""):
        values("raw", **{"raw.namespace": "n"})
    with pytest.raises(podbay.ConfigError, match=r"cluster\.namespace"):
        values("local", namespace="n")


def test_settings_have_their_effect(tmp_path):
    (tmp_path / "f").write_text("kept")
    with podbay.Sandbox(workspace=str(tmp_path), env={"A": "b"}, descriptors=77) as sandbox:
        assert sandbox.run("cat f; echo $A; ulimit -n").output == "keptb\n77\n"
    with podbay.Sandbox(config=LocalConfig(mounts=[f"{tmp_path}:/data"])) as sandbox:
        assert sandbox.read("/data/f").text == "kept"
        with pytest.raises(podbay.OperationError):
            sandbox.write("/data/f", "changed")
    with pytest.raises(podbay.ProviderError, match="/nonexistent"):
        podbay.Sandbox(workspace="/nonexistent").open()

"""Presets: names, sources, look-up order, and a YAML that means what it says."""

import math

import pytest

from sweep import presets
from sweep._kernels import quantities
from sweep.errors import SpecError

ACCELERATORS = "v100 a100 a100-40gb h100 h200 b200 gb200 b300 gb300 mi300x tpu-v5p".split()
MODELS = "gpt-3-175b llama-3-8b llama-3-70b llama-3-405b mixtral-8x7b deepseek-v3 megatron-1t".split()
TABLES = list(presets.TABLES)


@pytest.mark.parametrize("table, names", [("accelerator", ACCELERATORS), ("model", MODELS)])
def test_the_names_that_people_know(table, names):
    for name in names:
        assert presets.find(table, name).numbers


@pytest.mark.parametrize("table", TABLES)
def test_every_entry_has_a_source_and_a_plain_name(table):
    entries = presets.read_table(table)
    names = [name for preset in entries.values() for name in (preset.name, *preset.aliases)]
    assert entries and len(names) == len(set(names)), "a name or alias stands twice"
    for preset in entries.values():
        assert preset.source and not set(preset.source_of) - set(preset.numbers)
        assert preset.name == preset.name.lower() and " " not in preset.name and "_" not in preset.name


def test_every_accelerator_is_whole():
    for preset in presets.read_table("accelerator").values():
        wanted = {"peak_tflops", "hbm_gb", "hbm_gbytes_per_s", "scaleup_domain", "scaleup_gbytes_per_s", "link_gbps"}
        assert wanted <= set(preset.numbers), preset.name
        assert "bf16" in preset.numbers["peak_tflops"]
        for dtype, best in preset.facts.get("max_matmul_tflops", {}).items():
            assert best <= preset.numbers["peak_tflops"][dtype], f"{preset.name}: measured above its peak"
        if "accelerator_usd" in preset.numbers:
            said = preset.source_of.get("accelerator_usd", preset.source)
            assert said.startswith(("assumption", "as ", "http")), f"{preset.name}: no list price is public, so a price says whence"


def test_ports_and_domains_of_the_generations():
    shipped = {name: presets.find("accelerator", name).numbers for name in ACCELERATORS}
    ports = {name: numbers["link_gbps"] for name, numbers in shipped.items()}
    assert ports["v100"] == 50 and ports["a100"] == 200 and ports["h100"] == ports["b200"] == ports["gb200"] == 400
    assert ports["b300"] == ports["gb300"] == 800
    assert shipped["gb200"]["scaleup_domain"] == shipped["gb300"]["scaleup_domain"] == 72


def test_every_model_is_whole():
    for preset in presets.read_table("model").values():
        numbers = preset.numbers
        assert {"layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab"} <= set(numbers), preset.name
        assert numbers["heads"] % numbers["kv_heads"] == 0
        if numbers.get("experts"):
            assert numbers["top_k"] <= numbers["experts"] and numbers["expert_ffn"] > 0


def test_traps_of_the_sources():
    assert presets.find("model", "gemma-2-27b").numbers["layers"] == 46, "MaxText counts pairs of layers"
    v3 = presets.find("model", "deepseek-v3").numbers
    assert (v3["kv_lora_rank"], v3["q_lora_rank"], v3["head_dim"], v3["qk_rope_head_dim"], v3["v_head_dim"]) == (512, 1536, 128, 64, 128)
    assert v3["dense_layers"] == 3 and v3["shared_experts"] == 1


def test_unknown_names_suggest():
    with pytest.raises(SpecError, match="'h10' is no accelerator. Did you mean 'h100'.*sweep presets accelerators"):
        presets.find("accelerator", "h10")


def test_lookup_order(tmp_path, monkeypatch):
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    entry = dict(presets.find("stack", "ideal").numbers, source="mine")
    presets.write_presets("stack", {"ours": entry | {"hbm_efficiency": 0.5}}, home / "overlap-sweep")
    assert presets.find("stack", "ours").numbers["hbm_efficiency"] == 0.5
    presets.write_presets("stack", {"ours": entry | {"hbm_efficiency": 0.7}})
    assert presets.find("stack", "ours").numbers["hbm_efficiency"] == 0.7
    assert presets.find("stack", "ours").file.startswith("configs/presets")
    assert "ideal" in presets.read_table("stack"), "the packaged ones are still there"


def test_calibrated_entries_keep_what_was_written_by_hand(tmp_path):
    file = tmp_path / "presets" / "stacks.yaml"
    file.parent.mkdir()
    file.write_text("# mine\nhand: {hbm_efficiency: 0.5, source: me}\n")
    for value in (0.6, 0.7):
        presets.write_presets("stack", {"fitted": {"hbm_efficiency": value, "source": "a fit"}}, tmp_path)
    assert presets.read_yaml(file)["fitted"]["hbm_efficiency"] == 0.7 and file.read_text().startswith("# mine\nhand:")
    with pytest.raises(SpecError, match="is written by hand"):
        presets.write_presets("stack", {"hand": {"hbm_efficiency": 0.6, "source": "a fit"}}, tmp_path)


def test_configs_by_name_and_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert presets.find_config("quickstart").name == "quickstart.yaml"
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "quickstart.yaml").write_text("title: mine\n")
    assert str(presets.find_config("quickstart")) == "configs/quickstart.yaml"
    (tmp_path / "mine.yaml").write_text("title: mine\n")
    assert str(presets.find_config("mine.yaml")) == "mine.yaml"
    with pytest.raises(SpecError, match="no such config. Did you mean 'quickstart'"):
        presets.find_config("quikstart")
    with pytest.raises(SpecError, match="is a folder"):
        presets.find_config(str(tmp_path))


# -- YAML --------------------------------------------------------------------------------------------------------------


def parsed(text, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    return presets.read_yaml(path)


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("no", "no"), ("on", "on"), ("yes", "yes"), ("off", "off"), ("true", True), ("False", False),
        ("1e3", 1000.0), ("1E-3", 0.001), ("+4", 4), ("-2.5", -2.5), (".5", 0.5), ("5.", 5.0), ("1.5e+2", 150.0),
        ("12:30", "12:30"), ("010", 10), ("0x10", "0x10"), ("1_000", "1_000"), ("2026-01-01", "2026-01-01"),
        (".inf", math.inf), ("-.inf", -math.inf), ("inf", math.inf), ("null", None), ("~", None), ("", None), ("none", "none"),
        ("'400'", "400"), ("1f1b", "1f1b"),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text, wanted, tmp_path):
    found = parsed(f"key: {text}\n", tmp_path)["key"]
    assert found == wanted and type(found) is type(wanted)


def test_nan_is_a_number_to_be_refused(tmp_path):
    assert math.isnan(parsed("key: .nan\n", tmp_path)["key"])


@pytest.mark.parametrize(
    "text, hint",
    [
        ("a: 1\na: 2\n", "line 2: the key 'a' stands twice. Remove one"),
        ("a:\n\tb: 1\n", "line 2: a tab stands where spaces belong. Indent with spaces."),
        ("a: [1, 2\nb: 3\n", "is not YAML"),
        ("a: 'x\n", "is not YAML"),
        ("a: !!python/object/apply:os.system [true]\n", "is not YAML"),
        ("a: &x 1\nb: *y\n", "is not YAML"),
        ("{[1]: 2}\n", "a key is not a word"),
    ],
)
def test_bad_yaml_is_one_line(text, hint, tmp_path):
    with pytest.raises(SpecError) as caught:
        parsed(text, tmp_path)
    assert hint in str(caught.value) and "\n" not in str(caught.value)


def test_unreadable_files_are_said(tmp_path):
    with pytest.raises(SpecError, match="cannot be read"):
        presets.read_yaml(tmp_path)
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="UTF-8"):
        presets.read_yaml(tmp_path / "x.yaml")


@pytest.mark.parametrize(
    "entry, hint",
    [
        ({"hbm_gb": 80}, "has no source"),
        ({"hbm_gbb": 80, "source": "x"}, "Did you mean 'hbm_gb'"),
        ({"hbm_gb": "80", "source": "x"}, "is not a number"),
        ({"peak_tflops": {"bf17": 80}, "source": "x"}, "Did you mean 'bf16'"),
        ([1], "is not a mapping"),
    ],
)
def test_bad_presets_are_said(entry, hint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match=hint):
        presets.write_presets("accelerator", {"mine": entry})
    assert not (tmp_path / "configs" / "presets" / "accelerators.yaml").exists()


def test_presets_know_only_quantities():
    for table in TABLES:
        for preset in presets.read_table(table).values():
            assert set(preset.numbers) <= set(quantities.INPUTS)

"""Where the server is: the order of arguments, environment and profile file."""

from pathlib import Path

import pytest

from orbit import Config, ConfigError

PROFILES = """
[profile.default]
address = "https://default.example:443"
[profile.staging]
address = "https://staging.example"
api_key = "from-file"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "config.toml"
    file.write_text(PROFILES)
    return {"ORBIT_CONFIG": str(file)}


def test_nothing_said_is_the_server_beside() -> None:
    config = Config.load(environment={"ORBIT_CONFIG": "", "HOME": "/nowhere"})
    assert (config.target, config.secure) == ("localhost:7070", False)


def test_arguments_win_over_the_environment_and_that_over_the_profile(environment: dict[str, str]) -> None:
    assert Config.load(environment=environment).target == "default.example:443"
    named = {**environment, "ORBIT_PROFILE": "staging"}
    config = Config.load(environment=named)
    assert (config.target, config.api_key, config.secure) == ("staging.example:443", "from-file", True)
    said = {**named, "ORBIT_ADDRESS": "https://said.example", "ORBIT_SERVER": "http://other:1", "ORBIT_API_KEY": "k"}
    assert (Config.load(environment=said).target, Config.load(environment=said).api_key) == ("said.example:443", "k")
    assert Config.load(environment=said, address="http://127.0.0.1:9").target == "127.0.0.1:9"
    assert Config.load(environment={**named, "ORBIT_ADDRESS": ""}).target == "staging.example:443"


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("localhost:7070", "localhost:7070"),
        ("http://[::1]:7070", "[::1]:7070"),
        ("http://orbit.example", "orbit.example:80"),
        ("https://orbit.example/", "orbit.example:443"),
    ],
)
def test_addresses(address: str, target: str) -> None:
    assert Config(address=address).target == target


@pytest.mark.parametrize("address", ["", "localhost", "ftp://a:1", "http://a:1/path", "http://a:99999", "http://"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        Config(address=address)


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("http://localhost:7070", True),
        ("http://127.0.0.2:7070", True),
        ("http://[::1]:7070", True),
        ("https://orbit.example", True),
        ("http://orbit.example:7070", False),
        ("http://10.0.0.1:7070", False),
        ("http://localhost.example:7070", False),
    ],
)
def test_a_key_goes_in_clear_text_to_this_machine_only(address: str, allowed: bool) -> None:
    if allowed:
        assert "secret" not in repr(Config(address=address, api_key="secret"))
    else:
        with pytest.raises(ConfigError, match="clear text"):
            Config(address=address, api_key="secret")


def test_a_profile_that_is_not_there_is_told(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="staging"):
        Config.load(environment=environment, profile="nobody")
    with pytest.raises(ConfigError, match="no profile file"):
        Config.load(environment={"ORBIT_CONFIG": "/nowhere/config.toml"})
    Path(environment["ORBIT_CONFIG"]).write_text('[profile.default]\nadress = "x"')
    with pytest.raises(ConfigError, match="adress"):
        Config.load(environment=environment)

package orbit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAnAddressIsReadInEveryForm(t *testing.T) {
	for given, want := range map[string]string{
		"127.0.0.1:7070":              "http://127.0.0.1:7070",
		"orbit.internal":              "http://orbit.internal:7070",
		"http://localhost:7070/":      "http://localhost:7070",
		"http://orbit.internal":       "http://orbit.internal:80",
		"https://orbit.example.com":   "https://orbit.example.com:443",
		"HTTPS://orbit.example.com:1": "https://orbit.example.com:1",
		"[::1]:7070":                  "http://[::1]:7070",
	} {
		got, err := parseAddress(given, false)
		if err != nil || got.String() != want {
			t.Errorf("%s: %s, %v; want %s", given, got, err, want)
		}
	}
	if got, err := parseAddress("orbit.internal:7070", true); err != nil || got.String() != "https://orbit.internal:7070" {
		t.Errorf("with TLS configured: %s, %v", got, err)
	}
	for _, wrong := range []string{"", "ftp://host", "http://", "http://user@host", "http://host/path", "http://host?x=1", "a b:1"} {
		if got, err := parseAddress(wrong, false); err == nil {
			t.Errorf("%q is taken as %s", wrong, got)
		}
	}
}

func TestAKeyIsNotSentInClearTextToAnotherMachine(t *testing.T) {
	for address, refused := range map[string]bool{
		"http://localhost:7070": false, "http://127.0.0.9:7070": false, "http://[::1]:7070": false,
		"https://orbit.example.com": false, "http://orbit.example.com": true, "http://10.0.0.1:7070": true,
		"http://localhost.example.com": true,
	} {
		client, err := NewClient(WithAddress(address), WithAPIKey("secret"))
		if (err != nil) != refused {
			t.Errorf("%s: %v", address, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error tells the key: %v", err)
		}
		if client != nil {
			_ = client.Close()
		}
	}
}

func TestOptionsWinOverEnvironmentOverProfileOverDefault(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	text := "# ours\ncolour = true\n[profile.default]\naddress = 'http://from-default:1'\n" +
		"[profile.\"other one\"] # spaced\n address = \"http://from\\u002dother:2\" # a comment\napi_key = 'k'\n" +
		"[profile.other.deeper]\naddress = 3\n[somebody.else]\naddress = 'x'\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{}
	resolve := func(options ...ClientOption) (clientConfig, error) {
		var config clientConfig
		for _, option := range options {
			option(&config)
		}
		err := config.resolve(func(name string) string { return environment[name] })
		return config, err
	}
	check := func(want string, options ...ClientOption) {
		t.Helper()
		if config, err := resolve(options...); err != nil || config.address != want {
			t.Errorf("%q, %v; want %q", config.address, err, want)
		}
	}
	t.Setenv("HOME", t.TempDir())
	check(DefaultAddress)
	environment["ORBIT_CONFIG"] = file
	check("http://from-default:1")
	environment["ORBIT_PROFILE"] = "other one"
	check("http://from-other:2")
	environment["ORBIT_SERVER"] = "from-cli:4"
	check("from-cli:4")
	environment["ORBIT_ADDRESS"] = "http://from-env:3"
	check("http://from-env:3")
	check("http://option:4", WithAddress("http://option:4"))
	if config, err := resolve(); err != nil || config.apiKey != "k" {
		t.Errorf("the profile's key is %q, %v", config.apiKey, err)
	}
	if _, err := resolve(WithProfile("missing")); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a profile that is not there: %v", err)
	}
	if _, err := resolve(WithConfigFile(file + ".not")); err == nil {
		t.Error("a named file that is not there is no error")
	}
}

func TestAProfileWithABrokenTextIsRefusedWithItsLine(t *testing.T) {
	for _, text := range []string{"address = 'open", `address = "a" b`, `address = "\q"`} {
		_, err := parseProfiles("[profile.default]\n" + text)
		if err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

package orbit

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// defaultProfile is read if no profile is chosen.
const defaultProfile = "default"

// loadProfile reads a profile of a configuration file. Without a name the default one, and without a file the usual one,
// may be missing; what was asked for by name must be there.
func loadProfile(file, name string) (map[string]string, error) {
	chosen := name != ""
	if !chosen {
		name = defaultProfile
	}
	required := file != ""
	if !required {
		home, err := os.UserHomeDir()
		if err != nil && !chosen {
			return nil, nil
		}
		file = filepath.Join(home, ".config", "orbit", "config.toml")
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !chosen && !required {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("orbit: reading the configuration: %w", err)
	}
	profiles, err := parseProfiles(string(text))
	if err != nil {
		return nil, fmt.Errorf("orbit: %s: %w", file, err)
	}
	profile, ok := profiles[name]
	if !ok && chosen {
		return nil, fmt.Errorf("orbit: %s has no profile %q", file, name)
	}
	return profile, nil
}

// parseProfiles reads the [profile.NAME] sections of a TOML file. It knows as much of TOML as these need, texts on one
// line, and passes over other sections and other kinds of values, which are somebody else's.
func parseProfiles(text string) (map[string]map[string]string, error) {
	profiles := map[string]map[string]string{}
	var section map[string]string
	lines := bufio.NewScanner(strings.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			section = nil
			if name, ok := profileName(line); ok {
				if profiles[name] == nil {
					profiles[name] = map[string]string{}
				}
				section = profiles[name]
			}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if section == nil || !ok {
			continue
		}
		value = strings.TrimSpace(value)
		if value == "" || (value[0] != '"' && value[0] != '\'') {
			continue
		}
		content, err := tomlText(value)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		section[strings.TrimSpace(key)] = content
	}
	return profiles, lines.Err()
}

// profileName gives NAME of a line [profile.NAME], where NAME may be quoted.
func profileName(line string) (string, bool) {
	inner, _, ok := strings.Cut(line[1:], "]")
	head, name, dotted := strings.Cut(inner, ".")
	if !ok || !dotted || strings.TrimSpace(head) != "profile" {
		return "", false
	}
	name = strings.TrimSpace(name)
	if len(name) >= 2 && (name[0] == '"' || name[0] == '\'') && name[len(name)-1] == name[0] {
		name = name[1 : len(name)-1]
	}
	return name, name != ""
}

// tomlText reads a TOML text, basic or literal, and accepts nothing but a comment after it.
func tomlText(value string) (string, error) {
	end := 1
	for end < len(value) && value[end] != value[0] {
		if value[0] == '"' && value[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(value) {
		return "", errors.New("the text has no end")
	}
	rest := strings.TrimSpace(value[end+1:])
	if rest != "" && rest[0] != '#' {
		return "", fmt.Errorf("unexpected %q after the text", rest)
	}
	if value[0] == '\'' {
		return value[1:end], nil
	}
	// The escapes of TOML's basic texts are among Go's.
	content, err := strconv.Unquote(value[:end+1])
	if err != nil {
		return "", fmt.Errorf("%s is no text", value[:end+1])
	}
	return content, nil
}

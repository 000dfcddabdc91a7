package configcmd

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"rutter/cmd/rutter/term"
	"rutter/raftstore"
)

// maxConfigBytes bounds a file of settings.
const maxConfigBytes = 1 << 20

// configFile is a file of settings whose sections and keys are known.
type configFile struct {
	path     string
	sections map[string]map[string]string // values as a flag would take them
}

// keys returns the keys of a section, sorted.
func (f *configFile) keys(section string) []string {
	return slices.Sorted(maps.Keys(f.sections[section]))
}

func (f *configFile) has(section, key string) bool {
	_, ok := f.sections[section][key]
	return ok
}

// read reads a file, and refuses sections and keys that would have no effect.
func (s *Settings) read(path string) (*configFile, error) {
	in, err := raftstore.OpenRegular(path)
	if err != nil {
		return nil, term.Usagef("--config: %w", err)
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxConfigBytes+1))
	if err != nil {
		return nil, term.Usagef("--config: %w", err)
	}
	if len(text) > maxConfigBytes {
		return nil, term.Usagef("%s: more than %d bytes: is it a file of settings?", path, maxConfigBytes)
	}
	var content map[string]any
	if _, err := toml.Decode(string(text), &content); err != nil {
		var parse toml.ParseError
		if errors.As(err, &parse) {
			return nil, term.Usagef("%s:%d: %s", path, parse.Position.Line, parse.Message)
		}
		return nil, term.Usagef("%s: %w", path, err)
	}
	f := &configFile{path: path, sections: make(map[string]map[string]string)}
	for _, name := range slices.Sorted(maps.Keys(content)) {
		if err := s.add(f, name, content[name]); err != nil {
			return nil, term.Usagef("%s: %w", path, err)
		}
	}
	return f, nil
}

// add takes one section of a file.
func (s *Settings) add(f *configFile, name string, content any) error {
	var known []string
	for _, section := range s.Sections {
		known = append(known, section.Name)
	}
	section, ok := s.section(name)
	if !ok {
		return fmt.Errorf("%q is no section%s: the sections are [%s]", name, didYouMean(name, known), strings.Join(known, "], ["))
	}
	table, ok := content.(map[string]any)
	if !ok {
		return fmt.Errorf("%q is a section, and no key: write [%s]", name, name)
	}
	keys := make([]string, 0)
	for _, flag := range section.Flags() {
		keys = append(keys, flag.Names()[0])
	}
	f.sections[name] = make(map[string]string)
	for key, value := range table {
		if !slices.Contains(keys, key) {
			return fmt.Errorf("[%s] has no key %q%s: its keys are %s", name, key, didYouMean(key, keys), strings.Join(keys, ", "))
		}
		text, err := flagText(value)
		if err != nil {
			return fmt.Errorf("[%s] %s: %w", name, key, err)
		}
		f.sections[name][key] = text
	}
	return nil
}

// flagText is the text of a TOML value for a flag. Commas separate the elements of a
// list.
func flagText(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case bool, int64, float64:
		return fmt.Sprint(v), nil
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			text, ok := e.(string)
			if !ok || strings.Contains(text, ",") {
				return "", fmt.Errorf("want a list of strings without commas, as in [\"a\", \"b\"]")
			}
			parts[i] = text
		}
		return strings.Join(parts, ","), nil
	default:
		return "", fmt.Errorf("want a string, a number, true, false or a list of strings")
	}
}

// didYouMean names the nearest of the known words, if one is near.
func didYouMean(word string, known []string) string {
	best, at := "", len(word)/3+2
	for _, k := range known {
		if d := editDistance(word, k); d < at {
			best, at = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// editDistance is the Levenshtein distance: the least number of letters to insert,
// delete or change.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			corner, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, corner+cost)
		}
	}
	return row[len(b)]
}

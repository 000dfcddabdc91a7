package line

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// maxDepth bounds how deep values are nested: an entry's are 4.
const maxDepth = 16

// appendYAML appends a JSON object as one element of a YAML sequence. Texts keep their
// JSON quotes, which YAML 1.2 reads the same way (yaml.org/spec/1.2.2 section 1.2).
// Fields keep their order.
func appendYAML(b, object []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	dec.UseNumber()
	y := yamlWriter{b: append(b, '-'), dec: dec}
	if err := y.value(1); err != nil {
		return nil, err
	}
	return y.b, nil
}

// yamlWriter copies values from a JSON decoder.
type yamlWriter struct {
	b   []byte
	dec *json.Decoder
}

// value copies one value behind its key or dash. depth is the indentation of what is
// inside, in steps of two columns.
func (y *yamlWriter) value(depth int) error {
	if depth > maxDepth {
		return errors.New("values are nested too deep")
	}
	token, err := y.dec.Token()
	if err != nil {
		return err
	}
	open, nested := token.(json.Delim)
	if !nested {
		return y.scalar(token)
	}
	after := y.b[len(y.b)-1] // a mapping in a sequence begins behind its dash
	for n := 0; y.dec.More(); n++ {
		if n > 0 || after != '-' || open == '[' {
			y.b = append(append(y.b, '\n'), bytes.Repeat([]byte("  "), depth)...)
		} else {
			y.b = append(y.b, ' ')
		}
		if open == '[' {
			y.b = append(y.b, '-')
		} else {
			key, err := y.dec.Token()
			if err != nil {
				return err
			}
			y.b = append(y.b, yamlKey(key)...)
			y.b = append(y.b, ':')
		}
		if err := y.value(depth + 1); err != nil {
			return err
		}
		y.b = bytes.TrimSuffix(y.b, []byte("\n"))
	}
	if _, err := y.dec.Token(); err != nil { // the end
		return err
	}
	switch last := y.b[len(y.b)-1]; {
	case (last == ':' || last == '-') && open == '[':
		y.b = append(y.b, " []"...)
	case last == ':' || last == '-':
		y.b = append(y.b, " {}"...)
	}
	y.b = append(y.b, '\n')
	return nil
}

func (y *yamlWriter) scalar(token json.Token) error {
	text, err := plainJSON(token)
	if err != nil {
		return err
	}
	y.b = append(append(append(y.b, ' '), escaped(string(text))...), '\n')
	return nil
}

// yamlKey returns a plain name as it is, another key quoted.
func yamlKey(key json.Token) string {
	text := fmt.Sprint(key)
	for _, c := range text {
		if c != '_' && (c < 'a' || c > 'z') {
			quoted, err := plainJSON(text)
			if err != nil {
				return "?"
			}
			return escaped(string(quoted))
		}
	}
	switch text {
	case "", "null", "true", "false", "yes", "no", "on", "off", "y", "n":
		return `"` + text + `"`
	}
	return text
}

package importcmd

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxRecord bounds one object of a source, in bytes.
const maxRecord = 1 << 20

// splitter divides a text into its JSON objects, which are elements of lists, or stand
// one after another. It holds one object at a time, also of a list of a million NICs.
// The caller parses the objects.
type splitter struct {
	in     *bufio.Reader
	object []byte
	inList bool
	comma  bool // the last thing of the list was one
	any    bool // the list has an element
	count  int
}

// eachObject calls fn for each object of a text. The bytes are valid until fn returns.
func eachObject(r io.Reader, fn func(json.RawMessage) error) error {
	s := &splitter{in: bufio.NewReaderSize(r, 1<<16)}
	for {
		b, err := s.in.ReadByte()
		switch {
		case errors.Is(err, io.EOF) && s.inList:
			return fmt.Errorf("it ends within a list, after %d objects: it is not whole", s.count)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := s.next(b, fn); err != nil {
			return err
		}
	}
}

// next takes a byte that is in no object.
func (s *splitter) next(b byte, fn func(json.RawMessage) error) error {
	switch {
	case b == ' ' || b == '\t' || b == '\n' || b == '\r':
		return nil
	case b == '[' && !s.inList:
		s.inList, s.any, s.comma = true, false, false
		return nil
	case b == ']' && s.inList && !s.comma:
		s.inList = false
		return nil
	case b == ',' && s.inList && s.any && !s.comma:
		s.comma = true
		return nil
	case b == '{' && (!s.inList || s.comma || !s.any):
		if err := s.readObject(); err != nil {
			return err
		}
		s.any, s.comma = true, false
		return fn(s.object)
	}
	return fmt.Errorf("%q after %d objects: want a JSON list of objects, or objects one after another", b, s.count)
}

// readObject reads to the end of an object whose brace was read.
func (s *splitter) readObject() error {
	s.object = append(s.object[:0], '{')
	quoted, escaped := false, false
	for depth := 1; depth > 0; {
		b, err := s.in.ReadByte()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("it ends within object %d: it is not whole", s.count+1)
		}
		if err != nil {
			return err
		}
		if s.object = append(s.object, b); len(s.object) > maxRecord {
			return fmt.Errorf("object %d has more than %d bytes", s.count+1, maxRecord)
		}
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = b == '\\', b != '"'
		case b == '"':
			quoted = true
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']':
			depth--
		}
	}
	s.count++
	return nil
}

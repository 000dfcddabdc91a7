package applycmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"rutter/cmd/rutter/output"
	"rutter/log"
)

// savedFormat is the version of the file of a saved plan.
const savedFormat = 1

// maxSaved bounds the file of a saved plan, in bytes: 200 changes of MaxChangeBytes, in
// base64.
const maxSaved = 280 << 20

// saved is a plan in a file: exactly the changes that apply writes.
type saved struct {
	Format  int      `json:"rutter_plan"`
	Cluster log.UUID `json:"cluster"` // whose log it is for
	Head    log.Seq  `json:"head"`    // of the state that it was made of
	// Changes are encoded as they are stored (log.Encoder.Change), with their ids.
	Changes [][]byte `json:"changes"`
}

// save writes a plan to a file, which is there as a whole or not at all.
func save(name string, cluster log.UUID, head log.Seq, changes []*log.Change) (err error) {
	s := saved{Format: savedFormat, Cluster: cluster, Head: head, Changes: [][]byte{}}
	encoder := log.NewEncoder()
	for _, c := range changes {
		b, err := encoder.Change(c)
		if err != nil {
			return err
		}
		s.Changes = append(s.Changes, bytes.Clone(b))
	}
	out, err := os.CreateTemp(filepath.Dir(name), ".plan-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(out.Name()))
		}
	}()
	if err := output.JSON(out, s); err != nil {
		return errors.Join(err, out.Close())
	}
	if err := errors.Join(out.Sync(), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), name)
}

// load reads the file of a saved plan.
func load(name string) (*saved, []*log.Change, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxSaved+1))
	if err != nil {
		return nil, nil, err
	}
	if len(b) > maxSaved {
		return nil, nil, fmt.Errorf("%s: more than %d bytes: no plan is so large", name, maxSaved)
	}
	var s saved
	if err := json.Unmarshal(b, &s); err != nil || s.Format == 0 {
		return nil, nil, fmt.Errorf("%s is no saved plan: want a file that rutter plan --out wrote; documents are named with -f", name)
	}
	if s.Format != savedFormat {
		return nil, nil, fmt.Errorf("%s has format %d, and this program knows %d: make the plan again with this program", name, s.Format, savedFormat)
	}
	var changes []*log.Change
	for i, b := range s.Changes {
		c, err := log.DecodeChange(b)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: change %d: %w; make the plan again", name, i+1, err)
		}
		changes = append(changes, c)
	}
	return &s, changes, nil
}

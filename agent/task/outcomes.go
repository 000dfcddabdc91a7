package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"rutter/log"
)

// Outcome is the result of a task, as it is stored until the log has it.
type Outcome struct {
	ID        log.UUID `json:"id"`
	ClaimedBy uint64   `json:"claimed_by"`
	ChangeID  log.UUID `json:"change_id"` // of the change that reports it
	Status    string   `json:"status"`
	Failure   string   `json:"failure,omitempty"`
	Result    string   `json:"result,omitempty"`
	History   []string `json:"history,omitempty"`
}

// store keeps outcomes across restarts.
type store interface {
	put(Outcome) error
	drop(log.UUID) error
	has(log.UUID) bool
	all() []Outcome
}

// folder keeps each outcome in a file of its own, ID.json.
type folder struct {
	path string

	mu   sync.Mutex // protects held
	held map[log.UUID]Outcome
}

// openFolder makes the folder if it does not exist, and reads it. A damaged file is put
// aside: its task is then one without a result.
func openFolder(path string, logger *slog.Logger) (*folder, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("task: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("task: %w", err)
	}
	f := &folder{path: path, held: make(map[log.UUID]Outcome)}
	for _, entry := range entries {
		name := filepath.Join(path, entry.Name())
		if !strings.HasSuffix(name, ".json") {
			continue // half-written, or put aside
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("task: %w", err)
		}
		one, err := decodeOutcome(text)
		if err == nil && one.ID.String()+".json" == entry.Name() {
			f.held[one.ID] = one
			continue
		}
		logger.Error("the result of a task cannot be read, and is put aside", "file", name, "error", err)
		if err := os.Rename(name, name+".damaged"); err != nil {
			return nil, fmt.Errorf("task: %w", err)
		}
	}
	return f, nil
}

var errOutcome = errors.New("task: not an outcome")

// decodeOutcome reads a file of the folder.
func decodeOutcome(text []byte) (Outcome, error) {
	var one Outcome
	if err := json.Unmarshal(text, &one); err != nil {
		return one, fmt.Errorf("%w: %w", errOutcome, err)
	}
	if one.ID.IsZero() || one.ChangeID.IsZero() || one.ClaimedBy == 0 || one.Status != log.TaskComplete && one.Status != log.TaskFailure {
		return one, fmt.Errorf("%w: it lacks a part", errOutcome)
	}
	return one, nil
}

func (f *folder) file(id log.UUID) string { return filepath.Join(f.path, id.String()+".json") }

// put writes an outcome; it is on disk when put returns.
func (f *folder) put(one Outcome) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := json.Marshal(one)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(f.path, ".new-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(text)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), f.file(one.ID))
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	f.held[one.ID] = one
	return f.sync()
}

func (f *folder) sync() error {
	d, err := os.Open(f.path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (f *folder) drop(id log.UUID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.held, id)
	if err := os.Remove(f.file(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *folder) has(id log.UUID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.held[id]
	return ok
}

func (f *folder) all() (list []Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.held {
		list = append(list, one)
	}
	return list
}

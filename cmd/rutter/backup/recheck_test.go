package backup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

// TestFindsWhatRots: one kept backup a day is restored again, that first whose last check is the
// oldest, also by a server that begins anew. One that has changed is an alarm and stays.
func TestFindsWhatRots(t *testing.T) {
	store := startStore(t)
	now := time.Now().Truncate(time.Second)
	s := newSchedule(t, store, &now, func(c *Config) { c.Every = 10_000 * time.Hour })
	old := "rutter-s9-" + log.UUID{7}.String() + "-5-20260101T000000Z.snapshot"
	if err := os.WriteFile(filepath.Join(s.cfg.Folder, old), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		write(t, store, "tag"+now.Format("150405"))
		now = now.Add(time.Minute)
		s.step(t.Context(), true)
	}
	if st := s.Status(); st.Kept != 2 || st.OldLogs != 1 || len(st.Alarms) > 0 {
		t.Fatalf("%+v", st)
	}
	newest, first := s.files[0].Name, s.files[1].Name
	path := func(name string) string { return filepath.Join(s.cfg.Folder, name) }
	for name, age := range map[string]time.Duration{newest: 30 * time.Hour, first: 48 * time.Hour} {
		if err := os.Chtimes(path(name), now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path(newest))
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	file, err := os.OpenFile(path(newest), os.O_WRONLY, 0)
	if err == nil {
		_, err = file.Write(text)
		_ = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path(newest), now, now.Add(-30*time.Hour)); err != nil {
		t.Fatal(err)
	}
	s = newSchedule(t, store, &now, func(c *Config) { c.Every, c.Folder = 10_000*time.Hour, s.cfg.Folder })
	s.step(t.Context(), false) // lists the folder
	s.step(t.Context(), false)
	s.step(t.Context(), false)
	if st := s.Status(); st.Rechecks != 1 || len(st.Damaged) > 0 || !s.files[1].Checked.Equal(now) {
		t.Fatalf("the first day: %+v, %+v", st, s.files)
	}
	now = now.Add(recheckEvery)
	for range 2 {
		s.step(t.Context(), false)
	}
	st := s.Status()
	if st.Rechecks != 2 || len(st.Damaged) != 1 || st.Damaged[0].Name != newest || len(st.Alarms) != 1 || !strings.Contains(st.Alarms[0], "is damaged since it was made") || !st.Verified.Equal(s.files[1].At) || st.Kept != 2 {
		t.Fatalf("the second day: %+v", st)
	}
	now = now.Add(recheckEvery)
	s.step(t.Context(), false)
	if st := s.Status(); st.Rechecks != 3 || !s.files[1].Checked.Equal(now) {
		t.Errorf("the damaged one keeps the others from their checks: %+v", st)
	}
	if err := os.Remove(path(newest)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	s.step(t.Context(), true)
	if st := s.Status(); len(st.Alarms) > 0 || len(st.Damaged) > 0 {
		t.Errorf("the file is gone: %+v", st)
	}
	if all := names(t, s.cfg.Folder); len(all) != 3 {
		t.Errorf("the folder has %q", all)
	}
}

package serve

import (
	"errors"
	"path/filepath"
	"testing"

	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
)

// Keys that are encrypted are opened by their passphrase, and new ones are seen.
func TestKeyFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	path := filepath.Join(t.TempDir(), "ca.key")
	write := func(passphrase string) {
		t.Helper()
		key, err := pki.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		text, err := pki.EncodeKey(key, passphrase)
		if err == nil {
			err = tlsgate.WriteKey(path, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("secret")
	if _, err := (&keyFiles{}).read(path); !errors.Is(err, pki.ErrPassphrase) {
		t.Errorf("without the passphrase: %v", err)
	}
	if _, err := (&keyFiles{passphrase: "wrong"}).read(path); !errors.Is(err, pki.ErrPassphrase) {
		t.Errorf("with another passphrase: %v", err)
	}
	f := &keyFiles{passphrase: "secret"}
	first, err := f.read(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.read(path)
	if err != nil || again[0] != first[0] {
		t.Errorf("a file that did not change was opened again (%v)", err)
	}
	write("") // of a rotation, and in the clear
	next, err := f.read(path)
	if err != nil || next[0].Equal(first[0]) {
		t.Errorf("the new key was not read: %v", err)
	}
}

package serve

import (
	"crypto/ecdsa"
	"os"
	"sync"
	"time"

	"rutter/api/auth/tlsgate"
)

// keyFiles reads keys of authorities, and caches them until the file changes, because
// to decrypt a key takes a second and much memory, by design. It may be used
// concurrently.
type keyFiles struct {
	passphrase string

	mu   sync.Mutex
	held map[string]heldKeys // by path
}

// heldKeys are the keys of a file with this time and size.
type heldKeys struct {
	modified time.Time
	size     int64
	keys     []*ecdsa.PrivateKey
}

func (f *keyFiles) read(path string) ([]*ecdsa.PrivateKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, statErr := os.Stat(path)
	if h, ok := f.held[path]; ok && statErr == nil && h.size == info.Size() && h.modified.Equal(info.ModTime()) {
		return h.keys, nil
	}
	keys, err := tlsgate.ReadKeys(path, f.passphrase)
	if err != nil || statErr != nil {
		return keys, err
	}
	if f.held == nil {
		f.held = make(map[string]heldKeys)
	}
	f.held[path] = heldKeys{info.ModTime(), info.Size(), keys}
	return keys, nil
}

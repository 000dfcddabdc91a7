package supportcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"

	"rutter/api/support"
	"rutter/cmd/rutter/debugsocket"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/term"
)

// maxParts bounds the parts of one socket.
const maxParts = 32

// gatherLocal adds the parts of the daemons at these sockets.
func gatherLocal(ctx context.Context, f *file, paths []string, asked bool) error {
	found := 0
	var last error
	for _, path := range paths {
		n, err := gatherSocket(ctx, f, path)
		found += n
		if err == nil {
			continue
		}
		last = err
		if asked || !errors.Is(err, fs.ErrNotExist) { // a machine rarely has a server and an agent
			f.miss("local/"+localName(path), err.Error())
		}
	}
	if found > 0 {
		return nil
	}
	hint := "is a daemon running here with --debug-socket?"
	if errors.Is(last, syscall.EACCES) || errors.Is(last, syscall.EPERM) {
		hint = "run this as root, or as the daemon's user"
	}
	return term.NoAnswerError(fmt.Sprintf("no debug socket of this machine answers (%s): %v; %s", strings.Join(paths, ", "), last, hint))
}

// localName is the folder of a socket in the archive: that of the runtime folder of a unit,
// or the whole path.
func localName(path string) string {
	switch path {
	case debugsocket.ServerSocket:
		return "server"
	case debugsocket.AgentSocket:
		return "agent"
	}
	return safeName(strings.ReplaceAll(strings.TrimPrefix(filepath.Clean(path), "/"), "/", "_"))
}

// gatherSocket adds what the daemon at one socket lists.
func gatherSocket(ctx context.Context, f *file, path string) (found int, err error) {
	if !localhttp.IsSocket(path) {
		return 0, fmt.Errorf("%q: want an absolute path", path)
	}
	base, transport := localhttp.Reach(path)
	defer transport.CloseIdleConnections()
	web := &http.Client{Transport: transport}
	ask := func(ctx context.Context, path string) ([]byte, error) { return askSocket(ctx, web, base+path) }
	asking, cancel := context.WithTimeout(ctx, partTime)
	list, err := ask(asking, "/")
	cancel()
	if err != nil {
		return 0, err
	}
	var parts []string
	for line := range strings.Lines(string(list)) {
		part, is := strings.CutPrefix(strings.TrimSpace(line), "/support/")
		if is && part == safeName(part) && len(parts) < maxParts {
			parts = append(parts, part)
		}
	}
	return collect(ctx, f, "local/"+localName(path), path, parts, func(ctx context.Context, part string) ([]byte, error) {
		return ask(ctx, "/support/"+part)
	})
}

func askSocket(ctx context.Context, web *http.Client, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := web.Do(r)
	var failed *net.OpError
	if errors.As(err, &failed) {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	defer answer.Body.Close()
	const most = support.MaxPart + 100
	text, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errGone, err)
	case len(text) > most:
		return nil, fmt.Errorf("an answer of more than %d bytes", support.MaxPart)
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("status %d: %s", answer.StatusCode, support.Printable(string(text)))
	}
	return text, nil
}

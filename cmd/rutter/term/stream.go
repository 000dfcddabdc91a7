package term

import (
	"context"
	"io"
	"os"
)

// Input opens a file that the user named, or standard input for "-". It may be a pipe.
// Waiting for its data, or for its other end, ends with ctx.
func Input(ctx context.Context, name string) (io.ReadCloser, error) {
	open := func() (*os.File, error) { return os.Stdin, nil }
	if name != "-" {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() || info.IsDir() {
			return os.Open(name)
		}
		open = func() (*os.File, error) { return os.Open(name) }
	}
	out, in := io.Pipe()
	// A read of a pipe, and the open of a pipe without a writer, cannot be interrupted.
	// The goroutine stays, and ends with the program.
	go func() {
		file, err := open()
		if err == nil {
			_, err = io.Copy(in, file)
		}
		_ = in.CloseWithError(err) // nil means io.EOF
	}()
	return &input{out, context.AfterFunc(ctx, func() { _ = in.CloseWithError(ctx.Err()) })}, nil
}

// input is a pipe that is read until the context ends.
type input struct {
	*io.PipeReader
	stop func() bool
}

// Close implements io.Closer.
func (i *input) Close() error {
	i.stop()
	return i.PipeReader.Close()
}

package vminfocmd

import (
	"bytes"
	"testing"

	"github.com/urfave/cli/v2"

	"rutter/agent/vminfo"
)

func TestWriteEventOfWhatIsNotThere(t *testing.T) {
	m, err := vminfo.ParseMessage([]byte(`{"type":"modify","date":"2026-05-31T16:29:11.000Z","uuid":"u","vm":{},"changes":[{"path":["nics",null,"ip"],"action":"added","newValue":"10.0.0.1"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	out := new(bytes.Buffer)
	app := &cli.App{Writer: out, Action: func(c *cli.Context) error { return writeEvent(c, m) }}
	if err := app.Run([]string{"rutter"}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "[2026-05-31T16:29:11.000Z] u modify: nics.*.ip added :: null -> \"10.0.0.1\"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

package devcmd

import (
	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/demo"
	"rutter/cmd/rutter/term"
)

// DemoCommand is rutter demo.
func DemoCommand() *cli.Command {
	return &cli.Command{
		Name: "demo", Usage: "show the whole way from a change to a ping, on this machine, and check it", Category: "Trying it",
		Description: term.Examples(
			"rutter demo          # 90 s at most; exit code 0 only if every step held",
			"rutter demo --keep   # leaves the data and the logs for a look",
		),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "keep", Usage: "leave the folder with the data and logs of every process"},
			&cli.BoolFlag{Name: "plain", Usage: "without TLS"},
		},
		Action: func(c *cli.Context) error {
			if err := term.NoArguments(c); err != nil {
				return err
			}
			args := []string{"demo"}
			if c.Bool("keep") {
				args = append(args, "--keep")
			}
			if c.Bool("plain") {
				args = append(args, "--plain")
			}
			return demo.Run(c.Context, demo.Options{Keep: c.Bool("keep"), Plain: c.Bool("plain"), Args: args, Out: c.App.Writer})
		},
	}
}

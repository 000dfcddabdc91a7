package logcmd

import (
	"slices"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/line"
	"rutter/log/query"
)

const exampleCN = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"

// Command is `rutter log`, with the commands that other packages have.
func Command(more ...*cli.Command) *cli.Command {
	return &cli.Command{
		Name: "log", Usage: "read the log", Category: "The log",
		Description: term.Examples("rutter log tail -n 20 --follow", "rutter log show --after 1042 --kind nic", "rutter log show 1042 -o json",
			"rutter log blame nic 90:b8:d0:10:02:00", "rutter log stats --from 24h"),
		Subcommands: append([]*cli.Command{
			tailCommand(), showCommand(), historyCommand(), blameCommand(), statsCommand(), dumpCommand(), exportCommand(), importCommand(),
			stateCommand(), diffCommand(), verifyCommand(), bisectCommand(), replayCommand(),
		}, more...),
	}
}

func outputFlag() cli.Flag { return output.Flag(line.Formats()...) }

// filterFlags are the filters of package query, with the names that they have there.
func filterFlags() []cli.Flag {
	usage := map[string]string{
		"kind":    "only events of objects of this `KIND`: nic, network, vm, ip, task and so on; the error for a wrong one lists all kinds",
		"action":  "only this `ACTION`: create, update or delete",
		"object":  "only events of the object with this `ID`",
		"owner":   "only objects of the owner with this `UUID`, before or after the event",
		"vnet":    "only events on the vnet with this `NUMBER`",
		"network": "only the network with this `UUID`, and NICs on it before or after the event",
		"cn":      "only what concerns the CN with this `UUID`",
		"ip":      "only NICs that have this `ADDRESS`, before or after the event, and its IP object",
		"actor":   "only changes of this `ACTOR`",
		"path":    "only updates that changed this `FIELD`, such as gateway",
		"until":   "not after this `PLACE`: a seq (1042, #1042), a time (2026-11-22T01:20:30Z, \"2026-11-22 01:20\", 01:20:30 of today; UTC unless Z, +01:00 or local follows), or how long ago (5m, 90m ago, 7d)",
	}
	var flags []cli.Flag
	for _, name := range query.Names() {
		if text, ok := usage[name]; ok {
			flags = append(flags, &cli.StringFlag{Name: name, Usage: text + alternatives(name)})
		}
	}
	return flags
}

func alternatives(name string) string {
	if name == "until" {
		return ""
	}
	return "; several are separated by commas"
}

// readFlags are the flags of a command that reads a part of the log.
func readFlags(more ...cli.Flag) []cli.Flag {
	flags := append([]cli.Flag{term.ServersFlag(), term.DataFlag(), outputFlag()}, more...)
	return append(flags, filterFlags()...)
}

func fromFlag() cli.Flag {
	return &cli.StringFlag{Name: "from", Usage: "begin at this `PLACE`: a seq (1042, #1042), a time (2026-11-22T01:20:30Z, \"2026-11-22 01:20\", 01:20:30 of today; UTC unless Z, +01:00 or local follows), how long ago (5m, 90m ago, 7d), -N for the last N entries, or a cursor"}
}

func tailCommand() *cli.Command {
	return &cli.Command{
		Name: "tail", Usage: "the last entries, and with --follow new ones", Action: tail,
		Flags: readFlags(
			&cli.Uint64Flag{Name: "lines", Aliases: []string{"n"}, Value: 20, Usage: "`N` entries back from the end, of those that the filters select"},
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "continue with new entries"}),
		Description: term.Examples("rutter log tail", "rutter log tail -n 5 --follow --kind nic", "rutter log tail --follow -o ndjson",
			"rutter log tail -n 100 --path gateway,routes --actor napi",
			"rutter log tail --follow --cn "+exampleCN+"   # exactly what that CN is sent"),
	}
}

func showCommand() *cli.Command {
	return &cli.Command{
		Name: "show", Usage: "entries from a place on, or one by its seq", ArgsUsage: "[SEQ]", Action: show,
		Flags: readFlags(fromFlag(),
			&cli.StringFlag{Name: "after", Usage: "entries after this `SEQ`, or from this TIME on"},
			&cli.Uint64Flag{Name: "limit", Usage: "at most `N` entries; 0 for all"}),
		Description: term.Examples("rutter log show 1042", "rutter log show --after 1000 --limit 50 --cn "+exampleCN,
			"rutter log show --from 2026-11-21T14:00:00Z --until 2026-11-21T14:05:00Z --vnet 4385813",
			"rutter log show --from 30m --action delete -o table | less -S"),
	}
}

func historyCommand() *cli.Command {
	return &cli.Command{
		Name: "history", Usage: "everything that happened to one object", ArgsUsage: "[KIND] ID", Action: historyLines,
		Flags: []cli.Flag{term.ServersFlag(), term.DataFlag(), outputFlag()},
		Description: term.Examples("rutter log history nic 90:b8:d0:10:02:00", "rutter log history 5595d88c-6e4d-4bda-b58e-97dd02e30001",
			"rutter log history tag external -o ndjson"),
	}
}

func blameCommand() *cli.Command {
	return &cli.Command{
		Name: "blame", Usage: "which change set each field of an object, and its actor", ArgsUsage: "KIND ID", Action: blame,
		Flags: []cli.Flag{
			term.ServersFlag(), term.DataFlag(), output.TableFlag(),
			&cli.StringFlag{Name: "network", Usage: "of an address: only on this `NETWORK`, by its UUID or its name"},
		},
		Description: term.Examples("rutter log blame nic 90:b8:d0:10:02:00", "rutter log blame network 0e70de36-a40b-4ac0-9429-819f5ff82011",
			"rutter log blame ip 10.21.12.100 --network blue",
			"rutter log blame ip 10.21.12.100   # each event that gave, moved or took the address, or changed its IP object",
			"rutter log blame vm 5595d88c-6e4d-4bda-b58e-97dd02e30001 -o json"),
	}
}

func statsCommand() *cli.Command {
	return &cli.Command{
		Name: "stats", Usage: "count entries by kind, action, actor and CN, and how fast they came", Action: stats,
		Flags:       append([]cli.Flag{term.ServersFlag(), term.DataFlag(), output.Flag(), fromFlag()}, filterFlags()...),
		Description: term.Examples("rutter log stats", "rutter log stats --from 24h --kind nic", "rutter log stats --data /var/lib/rutter -o json") + "\n\nIt prints several tables, and so has no CSV: -o json has all figures.",
	}
}

func dumpCommand() *cli.Command {
	return &cli.Command{
		Name: "dump", Usage: "entries as they are stored: hash, checksum and every byte", ArgsUsage: "[SEQ]", Action: dump,
		Flags: append([]cli.Flag{
			term.ServersFlag(), term.DataFlag(), output.Flag("table", "ndjson"), fromFlag(),
			&cli.Uint64Flag{Name: "limit", Value: 10, Usage: "at most `N` entries; 0 for all"},
		}, filterFlags()...),
		Description: term.Examples("rutter log dump 1042", "rutter log dump --from -3", "rutter log dump --limit 0 -o ndjson > log.ndjson"),
	}
}

func exportCommand() *cli.Command {
	return &cli.Command{
		Name: "export", Usage: "write the log to a file that can be verified without a server", ArgsUsage: "FILE", Action: export,
		Flags: []cli.Flag{
			term.ServersFlag(), term.DataFlag(),
			&cli.StringFlag{Name: "after", Usage: "entries after this `SEQ|TIME`; without it, all that are kept"},
		},
		Description: term.Examples("rutter log export log.rlog", "rutter log export --after 1000000 - | zstd > log.rlog.zst", "rutter log tail --data log.rlog"),
	}
}

// kindNamed returns a kind by its name, or by the name of its commands.
func kindNamed(text string) (log.Kind, error) {
	short := map[string]log.Kind{"tag": log.KindNICTag, "cn": log.KindServer, "inventory": log.KindVM}
	if kind, ok := short[text]; ok {
		return kind, nil
	}
	kind, err := log.ParseKind(text)
	if err != nil || log.NewObject(kind) == nil {
		known := []string{"tag", "cn"}
		for k := range log.Kind(64) {
			if log.NewObject(k) != nil {
				known = append(known, k.String())
			}
		}
		slices.Sort(known)
		return 0, term.Usagef("%q is no kind of object in the log: want one of %q", text, known)
	}
	return kind, nil
}

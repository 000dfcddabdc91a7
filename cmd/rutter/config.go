package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/agentcmd"
	"rutter/cmd/rutter/certcmd"
	"rutter/cmd/rutter/servercmd"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/varpdcmd"
)

// One file may hold the settings of every role of a machine, each in a section
// of its own; its keys are the names of the flags. A flag wins over a variable,
// that over the file, that over the default.

// section is a part of the file: the flags that it sets, and how to check them.
type section struct {
	name  string
	flags func() []cli.Flag
	check func(*cli.Context) error
}

func sections() []section {
	return []section{
		{"server", servercmd.Flags, servercmd.Check},
		{"agent", agentcmd.Flags, agentcmd.Check},
		{"varpd", varpdcmd.Flags, func(c *cli.Context) error {
			_, err := varpdcmd.Servers(c.StringSlice("address"), c.Int("port"))
			return err
		}},
		{"client", clientFlags, func(c *cli.Context) error {
			_, err := term.NewClient(c)
			return err
		}},
	}
}

// clientFlags are those of every command that asks servers.
func clientFlags() []cli.Flag {
	return append([]cli.Flag{term.ServersFlag(), term.OutputFlag()}, term.TLSFlags()...)
}

func sectionNamed(name string) (section, bool) {
	all := sections()
	i := slices.IndexFunc(all, func(s section) bool { return s.name == name })
	if i < 0 {
		return section{}, false
	}
	return all[i], true
}

func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config", EnvVars: []string{"RUTTER_CONFIG"}, Usage: "TOML `FILE` of settings, which flags and variables win over"}
}

// configured makes a command and those below it take settings from the file.
// What a command starts takes its own from flags alone.
func configured(commands []*cli.Command) {
	for _, c := range commands {
		switch c.Name {
		case "server", "agent", "varpd":
			configureAs(c, c.Name)
		case "demo":
			c.Before = func(*cli.Context) error { return term.ForgetVariables() }
		case "config", "completion", "version", "dev", "bench":
		default:
			configureAs(c, "client")
		}
	}
}

func configureAs(c *cli.Command, name string) {
	if c.Action != nil {
		c.Flags = append(slices.Clone(c.Flags), configFlag())
		c.Before = func(ctx *cli.Context) error { return applyFile(ctx, name) }
	}
	for _, sub := range c.Subcommands {
		configureAs(sub, name)
	}
}

// applyFile sets the flags that neither the command line nor a variable set.
func applyFile(c *cli.Context, name string) error {
	if name != "client" {
		warnVariables(c.App.ErrWriter)
	}
	path := c.String("config")
	if path == "" {
		return nil
	}
	file, err := readConfig(path)
	if err != nil {
		return err
	}
	s, _ := sectionNamed(name)
	known := s.flags()
	for _, key := range file.keys(name) {
		// A flag of the same name that means something else has other variables.
		want, have := flagNamed(known, key), flagNamed(c.Command.Flags, key)
		value := file.sections[name][key]
		if have == nil || !slices.Equal(variables(want), variables(have)) || c.IsSet(key) || value == plainText(valueOf(c, have)) {
			continue // the last: a default that is written down sets nothing
		}
		if err := c.Set(key, value); err != nil {
			return term.Usagef("%s: [%s] %s: %w", path, name, key, err)
		}
	}
	return nil
}

func flagNamed(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if f.Names()[0] == name {
			return f
		}
	}
	return nil
}

// variables are the environment variables of a flag.
func variables(f cli.Flag) []string {
	if documented, ok := f.(cli.DocGenerationFlag); ok {
		return documented.GetEnvVars()
	}
	return nil
}

// warnVariables names variables that look like ours and are not.
func warnVariables(w io.Writer) {
	known := knownVariables(newApp(io.Discard, io.Discard).Commands, []string{"RUTTER_CONFIG", certcmd.PassphraseVariable})
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, term.VariablePrefix) && !term.PassedOn(name) && !slices.Contains(known, name) {
			fmt.Fprintf(w, "rutter: the variable %s means nothing%s\n", name, didYouMean(name, known))
		}
	}
}

func knownVariables(commands []*cli.Command, known []string) []string {
	for _, c := range commands {
		for _, f := range c.Flags {
			known = append(known, variables(f)...)
		}
		known = knownVariables(c.Subcommands, known)
	}
	return known
}

// configCommand shows and checks settings.
func configCommand() *cli.Command {
	return &cli.Command{
		Name: "config", Usage: "settings: what they are, where they come from, whether a file is right", Category: "Operating",
		Description: term.Examples(
			"rutter config print --config /etc/rutter/rutter.toml --origin",
			"rutter config print server --origin -- --listen 10.0.0.1:7420",
			"rutter config check /etc/rutter/rutter.toml",
		) + "\n\nA flag wins over a variable, that over the file, that over the default. The file has the sections\n[server], [agent], [varpd] and [client], whose keys are the names of the flags.",
		Subcommands: []*cli.Command{
			{
				Name: "print", Usage: "every setting, as a file that would give the same", ArgsUsage: "[server | agent | client] [-- FLAGS]", Action: configPrint,
				Flags:       []cli.Flag{configFlag(), term.OutputFlag(), &cli.BoolFlag{Name: "origin", Usage: "say where each value comes from"}},
				Description: term.Examples("rutter config print > rutter.toml", "rutter config print agent --config rutter.toml --origin"),
			},
			{
				Name: "check", Usage: "say whether a file's settings would be taken", ArgsUsage: "FILE", Action: configCheck,
				Description: term.Examples("rutter config check /etc/rutter/rutter.toml"),
			},
		},
	}
}

// setting is one value with its origin.
type setting struct {
	Section string `json:"section"`
	Key     string `json:"key"`
	Value   any    `json:"value"`
	Origin  string `json:"origin"`
}

func configPrint(c *cli.Context) error {
	args := c.Args().Slice()
	chosen := sections()
	if len(args) > 0 {
		s, ok := sectionNamed(args[0])
		if !ok {
			return term.Usagef("%q is no section: want server, agent, varpd or client", args[0])
		}
		chosen, args = []section{s}, args[1:]
	}
	warnVariables(c.App.ErrWriter)
	var settings []setting
	for _, s := range chosen {
		found, err := s.settings(c, c.String("config"), args)
		if err != nil {
			return err
		}
		settings = append(settings, found...)
	}
	return term.PrintOne(c, settings, func(w io.Writer) { writeSettings(w, settings, c.Bool("origin")) })
}

func writeSettings(out io.Writer, settings []setting, origin bool) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	last := ""
	for _, s := range settings {
		if s.Section != last {
			if last != "" {
				fmt.Fprintln(w)
			}
			last = s.Section
			fmt.Fprintf(w, "[%s]\n", last)
		}
		line := fmt.Sprintf("%s = %s", s.Key, tomlText(s.Value))
		if origin {
			line += "\t# " + s.Origin
		}
		fmt.Fprintln(w, line)
	}
	_ = w.Flush() // the terminal is gone: nobody is left to tell
}

// tomlText is a value as TOML has it.
func tomlText(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case []string:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = strconv.Quote(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	default:
		return fmt.Sprint(v)
	}
}

// plainText is a value as a flag takes it.
func plainText(v any) string {
	if list, ok := v.([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(v)
}

// run evaluates a section's flags as its command would, and calls do.
func (s section) run(c *cli.Context, path string, args []string, do func(*cli.Context) error) error {
	cmd := &cli.Command{Name: s.name, Flags: s.flags(), Action: func(inner *cli.Context) error {
		if err := term.NoArguments(inner); err != nil {
			return err
		}
		return do(inner)
	}}
	configureAs(cmd, s.name)
	app := newApp(io.Discard, io.Discard)
	app.Commands = []*cli.Command{cmd}
	everyCommand(app.Commands)
	line := []string{"rutter", s.name}
	if path != "" {
		line = append(line, "--config", path)
	}
	return app.RunContext(c.Context, append(line, args...))
}

func (s section) settings(c *cli.Context, path string, args []string) (settings []setting, err error) {
	var file *configFile
	if path != "" {
		if file, err = readConfig(path); err != nil {
			return nil, err
		}
	}
	err = s.run(c, path, args, func(inner *cli.Context) error {
		for _, f := range s.flags() {
			name := f.Names()[0]
			if visible, ok := f.(cli.VisibleFlag); ok && !visible.IsVisible() {
				continue
			}
			settings = append(settings, setting{s.name, name, valueOf(inner, f), s.origin(f, file, args)})
		}
		return nil
	})
	return settings, err
}

// origin says where the value of a flag comes from.
func (s section) origin(f cli.Flag, file *configFile, args []string) string {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && slices.Contains(f.Names(), name) {
			return "flag --" + f.Names()[0]
		}
	}
	for _, name := range variables(f) {
		if _, ok := os.LookupEnv(name); ok {
			return "variable " + name
		}
	}
	if file != nil && file.has(s.name, f.Names()[0]) {
		return "file " + file.path
	}
	return "default"
}

// valueOf is a flag's value as it goes into a file.
func valueOf(c *cli.Context, f cli.Flag) any {
	name := f.Names()[0]
	switch v := c.Value(name).(type) {
	case bool, int, int64, uint, uint64, float64, string:
		return v
	case cli.StringSlice:
		return append([]string{}, v.Value()...)
	case time.Duration:
		return v.String()
	default:
		return fmt.Sprint(v)
	}
}

func configCheck(c *cli.Context) error {
	path, err := term.OneFile(c)
	if err != nil {
		return err
	}
	file, err := readConfig(path)
	if err != nil {
		return err
	}
	for _, s := range sections() {
		if len(file.sections[s.name]) == 0 {
			continue
		}
		if err := s.run(c, path, nil, s.check); err != nil {
			return term.Usagef("%s: [%s]: %w", path, s.name, err)
		}
		fmt.Fprintf(c.App.Writer, "[%s] is right\n", s.name)
	}
	return nil
}

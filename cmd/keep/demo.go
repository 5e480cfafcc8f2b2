package main

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/demo"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// demoCmd shows what Keep is for to somebody who has a minute.
func (a *app) demoCmd() *cobra.Command {
	var dir string
	var kept bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Ten payments, a bank that loses answers, and a kill -9",
		Long: `Demo starts a bank on this machine that loses answers, and pays ten invoices
through it with a real workflow in a process of its own, which it kills in the
middle. At the end it compares the bank's book with Keep's ledger.

It needs no network and no account, and takes a few seconds. It works in a new
directory of its own, and removes it unless --keep or --dir is given.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.DB != "" || a.Config != "" {
				return exit.Misusef("demo makes its own database and configuration; --dir says where")
			}
			return demo.Run(cmd.Context(), a.Terminal, dir, kept)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "work in this `directory`, which must be new or empty, and leave it there")
	cmd.AddCommand(a.demoBankCmd())
	cmd.Flags().BoolVar(&kept, "keep", false, "leave the directory there")
	return cmd
}

// demoBankCmd is the bank alone, for the tutorial.
func (a *app) demoBankCmd() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:   "bank",
		Short: "Only a bank that loses answers, for the tutorial (keep docs tutorial)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			host, _, err := net.SplitHostPort(addr)
			if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
				return exit.Misusef("--listen %s: give an address of this machine, such as 127.0.0.1:9010", addr)
			}
			return demo.Bank(cmd.Context(), addr, func(format string, args ...any) {
				fmt.Fprintf(a.Err, "%s\n", terminal.Clean(fmt.Sprintf(format, args...)))
			})
		},
	}
	cmd.Flags().StringVar(&addr, "listen", "127.0.0.1:9010", "`address` of this machine")
	return cmd
}

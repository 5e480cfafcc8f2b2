package main

import (
	"github.com/spf13/cobra"
)

func (a *app) devCmd() *cobra.Command {
	return &cobra.Command{Use: "dev PATH"}
}

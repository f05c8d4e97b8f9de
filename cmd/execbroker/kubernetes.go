package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/kubernetes"
)

func (a *app) kubernetesCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "kubernetes",
		Short: "Prepare a Kubernetes cluster",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return usage("want what to print: rbac") },
	}
	c.AddCommand(a.kubernetesRBACCommand())
	return c
}

func (a *app) kubernetesRBACCommand() *cobra.Command {
	namespace, account, network := "sandboxes", "execbroker", string(kubernetes.NetworkInterface)
	c := &cobra.Command{
		Use:   "rbac",
		Short: "Print the namespace and the rights that the backend needs",
		Long: `Print a namespace for sandboxes, a service account, and a role with every right that
the kubernetes backend uses and no other. kubectl apply takes it.`,
		Example: `  execbroker kubernetes rbac --namespace sandboxes | kubectl apply -f -`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := kubernetes.RBAC(namespace, account, kubernetes.NetworkMode(network))
			if err != nil {
				return usage("%v", err)
			}
			_, err = io.WriteString(a.out, text)
			return err
		},
	}
	c.Flags().StringVar(&namespace, "namespace", namespace, "the `name` of the namespace")
	c.Flags().StringVar(&account, "account", account, "the `name` of the service account and of its role")
	c.Flags().StringVar(&network, "network", network, "the `mode` of the backend: interface or policy")
	return c
}

{{- define "execbroker.fullname" -}}
{{- if contains "execbroker" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-execbroker" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "execbroker.selector" -}}
app.kubernetes.io/name: execbroker
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "execbroker.labels" -}}
{{ include "execbroker.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | quote }}
{{- end }}

{{- /* Without a repository: the image of the release, by the name that it has where it was loaded. */}}
{{- define "execbroker.image" -}}
{{- $tag := default (.Chart.AppVersion | replace "+" "-") .Values.image.tag }}
{{- printf "%s:%s" (default "docker.io/library/execbroker" .Values.image.repository) $tag }}
{{- end }}

{{- define "execbroker.account" -}}
{{ default (include "execbroker.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- /* The port of the store: that of its URL, or else that of its kind. */}}
{{- define "execbroker.storePort" -}}
{{- $given := trimPrefix ":" (regexFind ":[0-9]+$" (urlParse .Values.store.url).host) }}
{{- .Values.networkPolicy.storePort | default $given | default (ternary 5432 6379 (hasPrefix "postgres" .Values.store.url)) | int }}
{{- end }}

{{- /* Whether there may be more than one replica at a time. */}}
{{- define "execbroker.several" -}}
{{- if or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled }}yes{{ end }}
{{- end }}

{{- /* The configuration of serve: that of the values, the store, and a backend if there is none. */}}
{{- define "execbroker.config" -}}
{{- $c := deepCopy .Values.config }}
{{- if not $c.backends }}
{{- if not .Values.sandboxes.enabled }}{{ fail "config.backends: is required without sandboxes.enabled" }}{{ end }}
{{- $fixed := dict "type" "kubernetes" "in_cluster" true "namespace" .Values.sandboxes.namespace "network" .Values.sandboxes.network }}
{{- $_ := set $c "backends" (dict "cluster" (mergeOverwrite (deepCopy .Values.sandboxes.backend) $fixed)) }}
{{- end }}
{{- if .Values.store.url }}
{{- $s := default dict $c.sessions }}
{{- $_ := set $s "store" .Values.store.url }}
{{- if .Values.store.passwordSecret }}{{ $_ := set $s "store_password" (dict "env" "EXECBROKER_STORE_PASSWORD") }}{{ end }}
{{- $_ := set $c "sessions" $s }}
{{- end }}
{{- toYaml $c }}
{{- end }}

{{- /* What values cannot be, checked once, before anything is rendered. */}}
{{- define "execbroker.check" -}}
{{- $bad := list }}
{{- $v := .Values }}
{{- if and (not $v.image.repository) (eq $v.image.pullPolicy "Always") }}{{ $bad = append $bad "image.pullPolicy: Always needs image.repository; without one nodes have the image of the release already" }}{{ end }}
{{- if not $v.apiKeys.secret }}{{ $bad = append $bad "apiKeys.secret: is required: the name of a Secret with the API keys of clients" }}{{ end }}
{{- if and (include "execbroker.several" .) (not $v.store.url) }}{{ $bad = append $bad "replicas: more than one needs store.url, because replicas share conversations, rates and quotas by it" }}{{ end }}
{{- if and $v.config.sessions (or (hasKey $v.config.sessions "store") (hasKey $v.config.sessions "store_password")) }}{{ $bad = append $bad "config.sessions: the store is set by store.url and store.passwordSecret" }}{{ end }}
{{- if and $v.serviceMonitor.enabled (not $v.metrics.enabled) }}{{ $bad = append $bad "serviceMonitor: needs metrics.enabled" }}{{ end }}
{{- if lt (int $v.drainSeconds) (int $v.maxTimeoutSeconds) }}{{ $bad = append $bad "drainSeconds: want at least maxTimeoutSeconds, so that no upgrade cuts off a run" }}{{ end }}
{{- if and $v.sandboxes.enabled (eq $v.sandboxes.namespace .Release.Namespace) }}{{ $bad = append $bad "sandboxes.namespace: want another namespace than that of the release, because sandboxes run untrusted code" }}{{ end }}
{{- if and $v.sandboxes.backend (or $v.config.backends (not $v.sandboxes.enabled)) }}{{ $bad = append $bad "sandboxes.backend: needs sandboxes.enabled, and excludes config.backends" }}{{ end }}
{{- range list "type" "in_cluster" "namespace" "network" }}
{{- if hasKey $v.sandboxes.backend . }}{{ $bad = append $bad (printf "sandboxes.backend.%s: the chart sets it" .) }}{{ end }}
{{- end }}
{{- if and $v.store.passwordSecret (not $v.store.url) }}{{ $bad = append $bad "store.passwordSecret: needs store.url" }}{{ end }}
{{- if and (not $v.sandboxes.enabled) (or $v.sandboxes.fullEgress $v.sandboxes.packagesEgress) }}{{ $bad = append $bad "sandboxes.fullEgress, sandboxes.packagesEgress: need sandboxes.enabled" }}{{ end }}
{{- if and $v.serviceAccount.name $v.serviceAccount.annotations }}{{ $bad = append $bad "serviceAccount.annotations: the chart makes no account beside serviceAccount.name; annotate that one yourself" }}{{ end }}
{{- if and $v.autoscaling.enabled (gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) }}{{ $bad = append $bad "autoscaling.maxReplicas: want at least minReplicas" }}{{ end }}
{{- range list "POD_NAME" "HOME" "XDG_CACHE_HOME" "EXECBROKER_API_KEYS" "EXECBROKER_STORE_PASSWORD" }}
{{- if hasKey $v.secrets . }}{{ $bad = append $bad (printf "secrets.%s: the chart sets it" .) }}{{ end }}
{{- end }}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/instance" }}
{{- if hasKey $v.podLabels . }}{{ $bad = append $bad (printf "podLabels: %s is by what the chart selects its pods" .) }}{{ end }}
{{- end }}
{{- if hasKey $v.podAnnotations "checksum/config" }}{{ $bad = append $bad "podAnnotations: checksum/config lets a change of the configuration roll the replicas" }}{{ end }}
{{- if $bad }}{{ fail (printf "\n%s" (join "\n" $bad)) }}{{ end }}
{{- end }}

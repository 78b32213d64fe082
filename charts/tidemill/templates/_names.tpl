{{- define "tidemill.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 34 | trimSuffix "-" }}
{{- end }}

{{- define "tidemill.metadata" -}}
{{ include "tidemill.place" . }}
{{- with .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tidemill.place" -}}
namespace: {{ .Release.Namespace }}
labels:
  app.kubernetes.io/name: tidemill
  app.kubernetes.io/instance: {{ include "tidemill.name" . }}
  app.kubernetes.io/part-of: tidemill
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
  {{- with .Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The same with more labels and annotations: a list of the root, the ones, and the others. */}}
{{- define "tidemill.labelled" -}}
{{- $root := index . 0 }}
{{- $labels := merge dict (index . 1) $root.Values.commonLabels }}
{{- $annotations := merge dict (index . 2) $root.Values.commonAnnotations }}
{{- $values := dict "nameOverride" $root.Values.nameOverride "commonLabels" $labels "commonAnnotations" $annotations }}
{{- include "tidemill.metadata" (dict "Values" $values "Release" $root.Release "Chart" $root.Chart) }}
{{- end }}

{{/* Where clients find the queue. */}}
{{- define "tidemill.server" -}}
{{ include "tidemill.name" . }}-meta.{{ .Release.Namespace }}.svc:7401
{{- end }}

{{/* The Secrets by which the queue is locked, as the API server will take them; empty: there are none. */}}
{{- define "tidemill.tlsSecret" -}}
{{ dig "security" "tls" "secretRef" "name" "" .Values.cluster }}
{{- end }}

{{/* What contradicts itself and no schema can say. */}}
{{- define "tidemill.check" -}}
{{- $meta := .Values.cluster.meta | default dict }}
{{- if and .Values.postgresql.existingSecret $meta.store }}
{{- fail "postgresql.existingSecret and cluster.meta.store both say where meta keeps what it knows: write one of them" }}
{{- end }}
{{- if and .Values.canary.enabled (dig "security" "token" "name" "" .Values.cluster) (not (dig "security" "serviceAccounts" "audience" "" .Values.cluster)) (not .Values.canary.token) }}
{{- fail "the queue asks its canary who it is: write cluster.security.serviceAccounts, or name in canary.token a Secret with a token of its own" }}
{{- end }}
{{- $monitor := .Values.monitoring.podMonitor }}
{{- if and $monitor.enabled (dig "security" "token" "name" "" .Values.cluster) (not $monitor.tokenSecret.name) }}
{{- fail "the queue asks who Prometheus is: name in monitoring.podMonitor.tokenSecret a Secret with a token that was granted Browse on *" }}
{{- end }}
{{- range $list, $items := dict "brokerGroups" .Values.brokerGroups "subjects" .Values.subjects "consumerGroups" .Values.consumerGroups "archives" .Values.archives }}
{{- $names := list }}
{{- range $items }}
{{- if has .name $names }}
{{- fail (printf "%s has %s twice: give one of them another name" $list .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- end }}
{{- end }}

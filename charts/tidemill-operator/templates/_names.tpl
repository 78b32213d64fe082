{{- define "operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "operator.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "operator.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "operator.serviceAccount" -}}
{{- default (include "operator.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{/* What never changes after an installation: selectors cannot. By the name the policies of queues let the operator in. */}}
{{- define "operator.selector" -}}
app.kubernetes.io/name: tidemill-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
app.kubernetes.io/part-of: tidemill
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A line of metadata, or none. */}}
{{- define "operator.annotations" -}}
{{- with .Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- define "operator.image" -}}
{{- $name := .Values.image.repository }}
{{- if .Values.image.registry }}{{ $name = printf "%s/%s" .Values.image.registry $name }}{{ end }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $name .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $name (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "operator.sparkImage" -}}
{{- $name := .Values.sparkImage.repository }}
{{- if .Values.sparkImage.registry }}{{ $name = printf "%s/%s" .Values.sparkImage.registry $name }}{{ end }}
{{- printf "%s:%s" $name (default .Chart.AppVersion .Values.sparkImage.tag) }}
{{- end }}

{{- define "operator.port" -}}8080{{- end }}

{{/* The namespaces it looks after, as a list in YAML; empty: all of them. */}}
{{- define "operator.namespaces" -}}
{{- if eq .Values.watch.scope "Namespaces" -}}
{{- toYaml (default (list .Release.Namespace) .Values.watch.namespaces | uniq | sortAlpha) }}
{{- else -}}
[]
{{- end }}
{{- end }}

{{/* What contradicts itself and no schema can say. */}}
{{- define "operator.check" -}}
{{- if and (eq .Values.watch.scope "Cluster") .Values.watch.namespaces }}
{{- fail "watch.namespaces is for watch.scope Namespaces, and the scope is Cluster: set the scope, or leave the list empty" }}
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.create is false and no name is given: say which ServiceAccount it is" }}
{{- end }}
{{- end }}

{{/* The Secret by which KEDA's external scaler speaks TLS; empty: there is none. */}}
{{- define "operator.scalerTls" -}}
{{- if .Values.scaler.enabled }}{{ .Values.scaler.tls.secretName }}{{ end }}
{{- end }}

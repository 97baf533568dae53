{{/* Configuration file of the guard. Takes the root. */}}
{{- define "npu-platform.guard.config" -}}
mode: {{ .Values.guard.mode }}
taint: {{ .Values.guard.taint }}
thresholds:
  {{- include "npu-platform.thresholds" . | nindent 2 }}
scrape:
  {{- toYaml .Values.guard.scrape | nindent 2 }}
missingData: {{ .Values.guard.missingData }}
forgetAfterSeconds: {{ .Values.guard.forgetAfterSeconds }}
manualPauseSeconds: {{ .Values.guard.manualPauseSeconds }}
observeVendors: {{ toJson .Values.guard.observeVendors }}
includeControlPlane: {{ .Values.guard.includeControlPlane }}
resources: {{ include "npu-platform.plugin.resources" . }}
budget:
  {{- toYaml .Values.guard.budget | nindent 2 }}
storm:
  {{- toYaml .Values.guard.storm | nindent 2 }}
{{- end -}}

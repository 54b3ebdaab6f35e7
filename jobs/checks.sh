# Sourced by jobs/launch, jobs/submit and jobs/manifest: whether what a file or a variable says is what it should be. bash
# computes with numbers only after that: in an expression it also runs commands.
# shellcheck shell=bash disable=SC2034

is_count() { [[ $1 =~ ^(0|[1-9][0-9]{0,14})$ ]]; }
is_number() { [[ $1 =~ ^[1-9][0-9]{0,8}$ ]]; } # of ranks, nodes, sequences
is_run_name() { [[ $1 =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$ ]]; }

# A path that no command takes for an option.
plain_path() { if [[ $1 == -* ]]; then echo "./$1"; else echo "$1"; fi; }

# FILE: its text
manifest_text() {
    [[ -f $1 && -r $1 ]] || fail "cannot read the manifest $1; create it with jobs/manifest"
    [[ -z $(tail -c 1 -- "$1" | tr -d '\0') ]] || fail "$1 is truncated; remove it and create it again with jobs/manifest"
    tr -d '\0' <"$1"
}

# LINE into index, name, nodes, ranks_of_line and settings_of_line; fails for one that jobs/manifest does not write.
take_manifest_line() {
    local rest setting
    read -r index name nodes ranks_of_line rest <<<"$1"
    is_count "$index" && is_run_name "$name" && is_number "$nodes" && is_number "$ranks_of_line" || return 1
    read -ra settings_of_line <<<"$rest"
    for setting in ${settings_of_line[@]+"${settings_of_line[@]}"}; do
        [[ $setting =~ ^[a-z][a-z0-9_.-]*= ]] || return 1
    done
}

# FILE LINE
refuse_manifest_line() {
    fail "$1 is damaged: \"${2:0:100}\" is no line of a manifest (INDEX NAME NODES RANKS KEY=VALUE …); remove the file and create it again with jobs/manifest"
}

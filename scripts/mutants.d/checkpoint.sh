# shellcheck shell=bash
# Bugs that a checkpoint store may have, and the tests that see them; sourced by scripts/mutants.
# mutant NAME WHAT FILE BINARY RANKS FILTER SEARCH REPLACE

calls=fault/fault_checkpoint_calls crash=fault/fault_checkpoint_crash life=fault/fault_checkpoint
save='*OfASave*/Eio' random='RandomOperations.*' states='*CrashStates*/2'

# What never reaches the disk, by crashes at every point.
mutant shard_not_synced 'a shard is written and not synced' lib/checkpoint/shard_file.cpp $crash 2 "$states" \
  '  file.sync();
' ''
mutant attachment_not_synced 'an attached file is written and not synced' lib/core/staged.cpp $crash 2 "$states" \
  '  file.sync();
' ''
mutant parent_not_synced 'the rename that commits is acknowledged before it lasts' lib/core/staged.cpp $crash 2 "$states" \
  '  files_.sync_folder(target_.parent_path());
' ''
mutant file_replaced_not_synced 'manifest, lock and run.json are renamed over without a sync' lib/core/file.cpp $crash 2 "$states" \
  '    if (sync) file.sync();' ''
mutant folder_replaced_in_not_synced 'the folder with the new manifest is not synced' lib/core/file.cpp $crash 2 "$states" \
  'if (renamed && sync) sync_folder' 'if (false) sync_folder'
mutant new_folder_not_synced 'the run directory and export/ are never synced into their parents' lib/core/file.cpp $crash 2 "$states" \
  'if (make() == 0) return sync_folder(folder.parent_path());' 'if (make() == 0) return;'
mutant nothing_swept 'what dead saves have left is left' lib/checkpoint/staging.cpp $crash 2 "$states" \
  '((mark == ".tmp-" && is_hex(nonce, save_nonce_digits)) || (' '(('

# Errors passed over, by an error at every call.
mutant fsync_error_ignored 'a file whose sync failed counts as written' lib/core/file.cpp $calls 1 "$save" \
  'if (repeat([&] { return os_->fsync(fd_); }) != 0) fail_io' \
  'if (repeat([&] { return os_->fsync(fd_); }) > 0) fail_io'
mutant fsync_tried_again 'a failed sync is tried again and believed' lib/core/file.cpp $calls 1 "$save" \
  'if (repeat([&] { return os_->fsync(fd_); }) != 0) fail_io' \
  'if (os_->fsync(fd_) != 0 && os_->fsync(fd_) != 0) fail_io'
mutant folder_fsync_error_ignored 'a folder whose sync failed counts as synced' lib/core/file.cpp $calls 1 "$save" \
  'if (repeat([&] { return os_->fsync(file.fd()); }) != 0 && errno != EINVAL)' \
  'if (repeat([&] { return os_->fsync(file.fd()); }) > 0)'
mutant close_error_ignored 'a file whose close failed counts as written' lib/core/file.cpp $calls 1 "$save" \
  'if (os_->close(std::exchange(fd_, -1)) != 0 && errno != EINTR)' 'if (os_->close(std::exchange(fd_, -1)) > 0)'
mutant short_transfer_accepted 'a transfer cut short is not continued' lib/core/file.cpp $calls 1 '*OfASave*/Short' \
  '    at += static_cast<std::size_t>(moved);' '    at = size_bytes;'
mutant interruption_not_repeated 'a call that a signal has interrupted fails' lib/core/file.cpp $calls 1 '*OfASave*/Eintr' \
  'while (result < 0 && errno == EINTR) result' 'while (result < 0 && errno == EAGAIN) result'
mutant vote_ignored 'a rank that failed to write does not stop the commit' lib/checkpoint/save.cpp $calls 2 "$save" \
  '  if (!failing) return true;' '  if (!failing || world.size() > 1) return true;'
mutant io_error_is_damage 'a checkpoint that could not be read once is put aside' lib/checkpoint/run_folder.cpp $calls 1 '*OfALoad*/Eio' \
  'error.fault() == Fault::io ? Flaw::unreadable : Flaw::files' 'Flaw::files'
mutant failed_look_is_death 'an owner that cannot be looked up counts as dead' lib/core/owner.cpp $calls 1 '*OfASecond*/Eio' \
  'if (error.fault() == Fault::data) return "";' 'return "";'

# Damage believed.
mutant block_digests_off 'the digest of a block is not compared' lib/checkpoint/shard_set.cpp unit/unit_checkpoint 1 'ReaderTest.*' \
  'hasher.digest() != from.tables[dataset][block]) fail_block' 'false) fail_block'
mutant root_digest_off 'payload and digests changed together pass' lib/checkpoint/shard_set.cpp unit/unit_checkpoint 1 'ReaderTest.*' \
  '  if (root != wanted)
' '  if (false)
'
mutant self_digest_off 'a changed manifest passes' lib/checkpoint/manifest.cpp unit/unit_checkpoint 1 'Manifest.*' \
  'if (line != wanted) fail' 'if (line.size() != wanted.size()) fail'
mutant nonce_off 'a shard of another save passes' lib/checkpoint/shard_skeleton.cpp unit/unit_checkpoint 1 'ShardFile.*' \
  'if (got == wanted ||' 'if (name == "save_nonce" || got == wanted ||'

# Names trusted, leases not held, by random operations.
mutant lease_not_checked 'a job that was taken over commits' lib/checkpoint/save.cpp $life 1 "$random" \
  '      lock_->check();
      input_.make_way();' '      input_.make_way();'
mutant every_owner_is_gone 'a second job takes the run of a live one' lib/core/owner.cpp $life 1 "$random" \
  '  return facts && (facts->only_waits_to_be_reaped() || facts->start_time != start_time);' '  return true;'
mutant retention_counts_bad 'what cannot be loaded counts as kept' lib/checkpoint/run_folder.cpp $life 1 "$random" \
  'if (!facts) continue;  // neither counted nor removed' 'if (!facts && ++newer > 0) continue;'
mutant copy_not_awaited 'training changes what is still being copied' lib/checkpoint/save.cpp mpi/mpi_checkpoint 1 'BackgroundSave.*' \
  '  if (phase_ == Phase::writing) units_complete_.wait();' ''

# What a load takes and leaves.
loads=unit/unit_checkpoint
mutant payload_damage_accepted 'a checkpoint whose payload is damaged is loaded' lib/checkpoint/load.cpp $loads 1 'LoadTest.*' \
  '      if (!wrong) break;' '      if (!wrong || reader) break;'
mutant damage_kept_to_oneself 'a rank that finds damage falls back alone' lib/checkpoint/load.cpp mpi/mpi_checkpoint 2 'LoadOnRanks.*' \
  'comm::lowest_rank(world, own && own->fault() == fault)' \
  'own && own->fault() == fault ? std::optional{world.rank()} : std::nullopt'
mutant fallback_read_in_part 'an older checkpoint is believed like the newest' lib/checkpoint/load.cpp $loads 1 'LoadTest.*' \
  '? Verify::full : options.verify' '? options.verify : options.verify'
mutant quarantine_not_synced 'a damaged checkpoint is back after a power cut' lib/checkpoint/run_folder.cpp $loads 1 'LoadTest.*' \
  '  files_.sync_folder(folder);
  inspected_.forget(bad.directory);' '  inspected_.forget(bad.directory);'
mutant folder_link_followed 'a link in the place of a checkpoint is loaded' lib/checkpoint/run_folder.cpp $loads 1 'LoadTest.*' \
  'if (is_link(files_, directory)) return' 'if (false) return'
mutant shard_link_followed 'a link in the place of a shard is loaded' lib/checkpoint/run_folder.cpp $loads 1 'LoadTest.*' \
  'just_committed ? std::nullopt : link_in(reader)' 'std::optional<Path>{}'
mutant name_trusted 'a copy under the name of another step is loaded' lib/checkpoint/run_folder.cpp $loads 1 'LoadTest.*' \
  'if (reader.step() != candidate.step) return' 'if (false) return'
mutant newer_left_behind 'a run resumes below newer checkpoints' lib/checkpoint/run_folder.cpp $loads 1 'LoadTest.*' \
  '  if (newer.empty()) return;' '  if (!newer.empty()) return;'
mutant started_over 'a run with damaged checkpoints starts over' lib/checkpoint/run_folder.cpp $loads 1 'LoadTest.*' \
  'if (passed_over_.empty() && quarantined.empty()) return' 'if (quarantined.empty()) return'
mutant no_way_made 'what was passed over blocks the commits of its step' lib/checkpoint/save.cpp $loads 1 'LoadTest.*' \
  '      input_.make_way();' ''
mutant keep_txt_ignored 'retention removes what keep.txt names' lib/checkpoint/run_folder.cpp $loads 1 'RetentionTest.*' \
  'named.contains(candidate.step) || ' ''
mutant loaded_not_kept 'retention removes what was just loaded' lib/checkpoint/run_folder.cpp $loads 1 'RetentionTest.*' \
  'candidate.directory == loaded_ && commits_' 'candidate.directory.empty() && commits_'
mutant late_file_missing 'a file that one host sees late is missing' lib/checkpoint/shard_set.cpp $loads 1 '*LateFiles*' \
  'if (error != ENOENT && error != ESTALE) return;' 'return;'
mutant room_not_checked 'a manifest makes readers allocate what it likes' lib/checkpoint/manifest.cpp $loads 1 'Manifest.*' \
  'fields.require(needed <= room' 'fields.require(needed > 0'
mutant clocks_believed 'a live owner is dead by a wrong clock' lib/core/lease.cpp unit/unit_core 1 'LeaseTest.*' \
  'const bool expired = owner && !renewed &&' 'const bool expired = owner &&'
mutant nobody_watched 'an owner is dead by a wrong clock at once' lib/core/lease.cpp unit/unit_core 1 'LeaseTest.*' \
  '(expired && now_s - same_since_s > watch_s)' 'expired'
mutant no_heartbeat 'a lease is not renewed' lib/core/lease.cpp unit/unit_core 1 'LeaseTest.*' \
  '        lease.beat();' '        static_cast<void>(lease);'

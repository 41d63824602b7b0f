//! How RocksDB is tuned for a shard, and why.

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, LogLevel, LruCacheOptions,
    Options, SliceTransform,
};

/// Which keys belong together.
#[derive(Clone, Copy, Debug)]
pub struct Grouping {
    /// Stands in table files beside their filters: those of another rule are not asked.
    pub name: &'static str,
    /// The front of a key that those of its group have in common, perhaps all of it.
    pub front: fn(&[u8]) -> &[u8],
}

/// What a user of the store chooses; the rest is decided in `options`.
#[derive(Clone, Debug)]
pub struct RocksConfig {
    /// Blocks of table files kept in memory, with their indexes and filters. Bytes.
    pub block_cache_bytes: usize,
    /// Size of one write buffer; there are two, so that one fills while the other is written out. Also the most log that
    /// is replayed at a start, and about what is kept for recycling. Bytes.
    pub write_buffer_bytes: usize,
    /// Table files held open.
    pub open_files_max: u16,
    /// Make the database where there is none. Reopening never does.
    pub create: bool,
    /// What filters are made for. `None`: each key is by itself.
    pub grouping: Option<Grouping>,
    /// Names the time within which the page cache of the store's disk is not lost, for [`crate::Kv::kept`]; 0 where each
    /// change is synced before anybody hears of it.
    pub page_cache_epoch: u64,
}

impl Default for RocksConfig {
    fn default() -> Self {
        let (block_cache_bytes, write_buffer_bytes) = (32 << 20, 64 << 20);
        Self {
            block_cache_bytes,
            write_buffer_bytes,
            open_files_max: 512,
            create: true,
            grouping: None,
            page_cache_epoch: 0,
        }
    }
}

impl RocksConfig {
    /// For stores of some thousands of keys, such as the management service's: about 3 MiB in all.
    #[must_use]
    pub fn small() -> Self {
        let (block_cache_bytes, write_buffer_bytes) = (1 << 20, 512 << 10);
        Self { block_cache_bytes, write_buffer_bytes, open_files_max: 32, ..Self::default() }
    }

    pub(super) fn options(&self, create: bool) -> Options {
        let mut options = Options::default();
        options.create_if_missing(create);
        options.set_max_open_files(i32::from(self.open_files_max));
        write_path(&mut options, self.write_buffer_bytes);
        log_files(&mut options);
        let mut tables = tables(self.block_cache_bytes);
        if let Some(Grouping { name, front }) = self.grouping {
            // One entry in a filter for each group, in place of one for each key.
            options.set_prefix_extractor(SliceTransform::create(name, front, None));
            options.set_memtable_whole_key_filtering(false);
            tables.set_whole_key_filtering(false);
        }
        options.set_block_based_table_factory(&tables);
        options.set_compression_type(DBCompressionType::Lz4);
        quiet(&mut options);
        options
    }
}

fn write_path(options: &mut Options, write_buffer_bytes: usize) {
    options.set_write_buffer_size(write_buffer_bytes);
    options.set_max_write_buffer_number(2);
    // One flush and one compaction at a time: CPUs belong to the shard threads. Of several stores: see `threads`.
    options.set_max_background_jobs(2);
    // Names that do not exist are looked up at every create: the filter answers instead of a search of the write buffer.
    options.set_memtable_whole_key_filtering(true);
    // Some 20 bits for each key of a shard; a larger one would not stay in the CPU's cache.
    options.set_memtable_prefix_bloom_ratio(0.02);
    // One writer thread: there is nobody to yield to, and inserting concurrently only costs.
    options.set_allow_concurrent_memtable_write(false);
    options.set_enable_write_thread_adaptive_yield(false);
    // The first level on disk is as large as the files that are merged into it; larger, and each merge would write anew
    // what has not changed. Its files are small, so that what comes in order sinks on without being written again.
    options.set_max_bytes_for_level_base(write_buffer_bytes as u64);
    options.set_target_file_size_base(write_buffer_bytes as u64 / 4);
    options.set_target_file_size_multiplier(2);
    // Spread the writing of table files, so that a flush does not stand in the way of a log sync.
    options.set_bytes_per_sync(1 << 20);
}

fn log_files(options: &mut Options) {
    // A log file that is used again does not change its size with every sync: a sync of one is several times as fast.
    options.set_recycle_log_file_num(2);
    // The only mode that recycled logs allow: everything up to the first record that is not whole.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
}

fn tables(block_cache_bytes: usize) -> BlockBasedOptions {
    let mut tables = BlockBasedOptions::default();
    let mut cache = LruCacheOptions::default();
    cache.set_capacity(block_cache_bytes);
    // One shard: one thread reads. Many would each be too small for what is pinned.
    cache.set_num_shard_bits(0);
    tables.set_block_cache(&Cache::new_lru_cache_opts(&cache));
    tables.set_bloom_filter(10.0, false);
    tables.set_whole_key_filtering(true);
    // Indexes and filters count in the block cache, or memory would grow with the number of files.
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_cache_index_and_filter_blocks_with_high_priority(true);
    tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
    // And they come in parts, which are read one by one as they are needed: those of a large store are more than the cache, and
    // in one piece each would be read from its file at each look-up (a hundred times slower, measured). What leads to the
    // parts is small, and stays.
    tables.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    tables.set_partition_filters(true);
    tables.set_pin_top_level_index_and_filter(true);
    tables.set_optimize_filters_for_memory(true);
    tables
}

/// RocksDB's own log and statistics: little of it, and no thread that wakes for them.
fn quiet(options: &mut Options) {
    options.set_log_level(LogLevel::Info);
    options.set_max_log_file_size(1 << 20);
    options.set_keep_log_file_num(3);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_max_manifest_file_size(16 << 20);
}
